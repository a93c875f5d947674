// One block of 64 keys against up to 16 packed rows - (row, query head of one kv head) - a workgroup of 256 threads: the largest score, the sum of
// weights and the weighted sum of values of each row go to scratch, where attend_combine joins the blocks.
// Blocks are counted from key 0. Every sum has a fixed order: a product ascends its columns; weights are summed by fours, then the fours in
// order; values are summed over 8 keys, then the eights in order.
//   UNIT and UNITS  element type of the bound activations: vec4<f32> (vec4) or f32 (scalar)
//@include attend/rows_and_keys.wgsl
@group(0) @binding(5) var<storage, read_write> sums: array<vec4<f32>>;   // [block][row][query head][value quads]
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;  // [block][row][query head]: largest score, sum of weights
//@include attend/block_products.wgsl
//@include attend/merge.wgsl

var<workgroup> weights: array<f32, 1024>;  // [row][key]: scores, then softmax weights

struct Place {
  kv_head: u32,
  first_packed: u32,
  rows: u32,  // packed rows
  first_key: u32,
  block: u32,  // within the dispatch
}

fn query_at(place: Place, row: u32) -> u32 {
  return query_offset(place.kv_head, place.first_packed + row);
}

fn key_at(place: Place, key: u32) -> u32 {
  return key_offset(place.kv_head, place.first_key + key);
}

fn sees(packed: u32, key: u32) -> bool {
  let row = packed / params.group;
  if (!in_reach(row, key)) {
    return false;
  }
  return (selected_bits(row, key) & 1u) == 1u;
}

fn slot_of(place: Place, packed: u32) -> u32 {
  let rows = params.packed_rows / params.group;
  return (place.block * rows + packed / params.group) * params.query_heads + head_of(place.kv_head, packed);
}

// Scores to weights, 16 threads a row; writes the stats. Uses key_chunk.
fn weigh(place: Place, thread: u32) {
  let row = thread / 16u;
  let at = row * kBlockKeys + 4u * (thread % 16u);
  let weighs = row < place.rows;
  var scores = vec4<f32>(kMasked);
  if (weighs) {
    scores = vec4<f32>(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
    key_chunk[thread].x = max(max(scores.x, scores.y), max(scores.z, scores.w));
  }
  workgroupBarrier();
  var largest = kMasked;
  if (weighs) {
    for (var i = 0u; i < 16u; i++) {
      largest = max(largest, key_chunk[row * 16u + i].x);
    }
    let weight = select(exp2((scores - largest) * params.exponent_scale), vec4<f32>(0.0), scores <= vec4<f32>(kMasked));
    weights[at] = weight.x;
    weights[at + 1u] = weight.y;
    weights[at + 2u] = weight.z;
    weights[at + 3u] = weight.w;
    key_chunk[256u + thread].x = (weight.x + weight.y) + (weight.z + weight.w);
  }
  workgroupBarrier();
  if (weighs && thread % 16u == 0u) {
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
      sum += key_chunk[256u + row * 16u + i].x;
    }
    stats[slot_of(place, place.first_packed + row)] = vec2<f32>(largest, sum);
  }
}

// Eight keys' values of four columns.
struct Eight {
//@for K 8
  value${K}: vec4<f32>,
//@endfor
}

fn load_eight(place: Place, eight: u32, quad: u32) -> Eight {
  let key = place.first_key + 8u * eight;
  return Eight(
//@for K 8
      load_value(value_offset(place.kv_head, key + ${K}u), 4u * quad, params.value_dim),
//@endfor
  );
}

// Weighted sums of the values, 128 columns at a time: 32 threads take 8 keys, and the eights meet in key_chunk, two rows at a time.
fn sum_values(place: Place, thread: u32) {
  let lane = thread % 32u;
  let eight = thread / 32u;
  let quads = (params.value_dim + 3u) / 4u;
  for (var first_quad = 0u; first_quad < quads; first_quad += 32u) {
    let quad = first_quad + lane;
    let values_of = load_eight(place, eight, quad);
    for (var row = 0u; row < place.rows; row += 2u) {
      workgroupBarrier();  // key_chunk has been read
      for (var i = 0u; i < 2u; i++) {
        let at = (row + i) * kBlockKeys + 8u * eight;
        var sum = vec4<f32>(0.0);
//@for K 8
        sum = fma(vec4<f32>(weights[at + ${K}u]), values_of.value${K}, sum);
//@endfor
        key_chunk[(8u * i + eight) * 32u + lane] = sum;
      }
      workgroupBarrier();
      if (eight < min(2u, place.rows - row) && quad < quads) {
        var sum = vec4<f32>(0.0);
        for (var i = 0u; i < 8u; i++) {
          sum += key_chunk[(8u * eight + i) * 32u + lane];
        }
        sums[slot_of(place, place.first_packed + row + eight) * quads + quad] = sum;
      }
    }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let number = group.x + group.y * groups.x;
  if (number >= params.workgroups) {
    return;
  }
  let block = number / params.kv_heads / params.row_tiles;
  let first_packed = number / params.kv_heads % params.row_tiles * kRows;
  let place = Place(number % params.kv_heads, first_packed, min(kRows, params.packed_rows - first_packed),
                    (params.first_block + block) * kBlockKeys, block);
  if (!block_has_work(first_packed, first_packed + place.rows, place.first_key)) {
    if (thread < place.rows) {
      stats[slot_of(place, place.first_packed + thread)] = vec2<f32>(kMasked, 0.0);
    }
    return;
  }
  let products = block_products(place, place.rows, thread, params.key_dim);
  let key = thread % kBlockKeys;
  for (var i = 0u; i < 4u; i++) {
    let row = thread / kBlockKeys + 4u * i;
    if (row < place.rows) {
      weights[row * kBlockKeys + key] = select(kMasked, products[i], sees(place.first_packed + row, place.first_key + key));
    }
  }
  workgroupBarrier();
  weigh(place, thread);
  sum_values(place, thread);
}
