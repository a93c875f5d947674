// Products of up to 16 query rows with the 64 keys of a block: 256 threads, thread t keeps rows t / 64 + 0, 4, 8 and 12 of key t % 64.
// Keys and queries pass through workgroup memory in chunks of 32 columns, of which CHUNKS are loaded at once. A product is one chain
// of fused multiply-adds over ascending columns.
// The includer has kNowhere, kBlockKeys, load_query, load_key, a struct Place (the workgroup's work) and
//   query_at(place, row)  element offset of a row, or kNowhere
//   key_at(place, key)    element offset of key 0 .. 63 of the block, or kNowhere
const kRows: u32 = 16;
const kChunkQuads: u32 = 8;
const kPitch: u32 = 9;  // quads from key to key in the chunk: one more than it holds, against bank conflicts

var<workgroup> key_chunk: array<vec4<f32>, 576>;  // [key][kPitch]; free for other use between calls, behind a barrier
var<workgroup> query_chunk: array<vec4<f32>, 128>;

fn chain(query: vec4<f32>, key: vec4<f32>, product: f32) -> f32 {
  return fma(query.w, key.w, fma(query.z, key.z, fma(query.y, key.y, fma(query.x, key.x, product))));
}

fn add_chunk(before: vec4<f32>, rows: u32, first_row: u32, key: u32) -> vec4<f32> {
  var products = before;
  for (var quad = 0u; quad < kChunkQuads; quad++) {
    let k = key_chunk[key * kPitch + quad];
    let q_place = first_row * kChunkQuads + quad;
    products.x = chain(query_chunk[q_place], k, products.x);
    if (rows > 4u) {
      products.y = chain(query_chunk[q_place + 4u * kChunkQuads], k, products.y);
    }
    if (rows > 8u) {
      products.z = chain(query_chunk[q_place + 8u * kChunkQuads], k, products.z);
      products.w = chain(query_chunk[q_place + 12u * kChunkQuads], k, products.w);
    }
  }
  return products;
}

// rows: how many there are, the same for the whole workgroup. Component i: row t / 64 + 4 * i.
fn block_products(place: Place, rows: u32, thread: u32, dim: u32) -> vec4<f32> {
  let key = thread % kBlockKeys;
  let first_row = thread / kBlockKeys;
  // What this thread brings in: quad thread % 8 of keys thread / 8 and 32 + thread / 8, and of row thread / 8.
  let load_col = 4u * (thread % kChunkQuads);
  let load_row = thread / kChunkQuads;
  let key_place = load_row * kPitch + thread % kChunkQuads;
  let low_at = key_at(place, load_row);
  let high_at = key_at(place, load_row + 32u);
  let row_at = select(kNowhere, query_at(place, load_row), load_row < rows);
  var products = vec4<f32>(0.0);
  for (var first = 0u; first < dim; first += 4u * $CHUNKS * kChunkQuads) {
//@for C $CHUNKS
    let low${C} = load_key(low_at, first + ${C}u * 4u * kChunkQuads + load_col, dim);
    let high${C} = load_key(high_at, first + ${C}u * 4u * kChunkQuads + load_col, dim);
    let query${C} = load_query(row_at, first + ${C}u * 4u * kChunkQuads + load_col, dim);
//@endfor
//@for C $CHUNKS
    if (first + ${C}u * 4u * kChunkQuads < dim) {
      workgroupBarrier();  // the chunk before has been read
      key_chunk[key_place] = low${C};
      key_chunk[key_place + 32u * kPitch] = high${C};
      if (load_row < kRows) {
        query_chunk[thread] = query${C};
      }
      workgroupBarrier();
      products = add_chunk(products, rows, first_row, key);
    }
//@endfor
  }
  return products;
}
