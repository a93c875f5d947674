// How tiles of keys and of packed rows pass through workgroup memory, a chunk of head columns at a time: transposed, as quads of keys or rows,
// with an XOR swizzle against bank conflicts. Every thread brings in one block of 4 rows x 4 columns.
//   RQ   quads of packed rows of a workgroup     DCQ  quads of head columns of a chunk; (16 + RQ) * DCQ <= threads: one block a thread
const kRowQuads: u32 = $RQ;
const kRows: u32 = 4 * kRowQuads;
const kKeyQuads: u32 = 16;
const kKeys: u32 = 64;
const kChunkQuads: u32 = $DCQ;
const kChunkCols: u32 = 4 * kChunkQuads;
const kKeyTile: u32 = kChunkCols * kKeyQuads;  // vec4s of K^T in `chunk`; Q^T follows
const kSwizzle: u32 = 8 / kChunkQuads;         // spreads the columns of a chunk over the banks
const kRowMask: u32 = kRowQuads - 1;

var<workgroup> chunk: array<vec4<f32>, 4 * $DCQ * (16 + $RQ)>;  // K^T | Q^T: [column][key or row quad]

// The block of 4 rows x 4 columns that a thread brings into `chunk`, of keys or of queries.
struct Item {
  loads: bool,
  is_key: bool,
  row_quad: u32,
  col: u32,    // first column inside the chunk
  store: u32,  // place of its first column in `chunk`
  pitch: u32,  // from column to column
}

fn item_of(thread: u32) -> Item {
  let quad = thread % kChunkQuads;
  let row_quad = thread / kChunkQuads;
  let loads = row_quad < kKeyQuads + kRowQuads;
  if (row_quad < kKeyQuads) {
    return Item(loads, true, row_quad, 4u * quad, 4u * quad * kKeyQuads + (row_quad ^ (quad * kSwizzle)), kKeyQuads);
  }
  let query_quad = row_quad - kKeyQuads;
  return Item(loads, false, query_quad, 4u * quad, kKeyTile + 4u * quad * kRowQuads + (query_quad ^ ((quad * kSwizzle) & kRowMask)), kRowQuads);
}

fn store_block(item: Item, block: mat4x4<f32>) {
  if (item.loads) {
    chunk[item.store] = block[0];
    chunk[item.store + item.pitch] = block[1];
    chunk[item.store + 2u * item.pitch] = block[2];
    chunk[item.store + 3u * item.pitch] = block[3];
  }
}
