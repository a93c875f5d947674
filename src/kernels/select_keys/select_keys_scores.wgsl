// Scores of one row against a block of 64 keys a workgroup of 256 threads, as unsigned numbers of the same order. The heads pass sixteen at
// a time; their shares are added in order of the heads.
//   UNIT and UNITS  element type of the bound activations: vec4<f32> (vec4) or f32 (scalar)
struct Params {
  heads: u32,
  head_dim: u32,
  rows: u32,            // of the slice
  first_position: u32,  // of the slice's first row
  key_count: u32,
  first_block: u32,  // of this dispatch
  block_count: u32,
  key_origin: u32,  // the first key that is bound
  q_offset: u32,    // elements, to the slice's first row
  q_stride: u32,
  k_offset: u32,  // elements, to key key_origin
  k_stride: u32,
  w_offset: u32,  // elements, to the slice's first row
  w_stride: u32,
  scale: f32,
  workgroups: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<$UNIT>;
@group(0) @binding(2) var<storage, read> keys: array<$UNIT>;
@group(0) @binding(3) var<storage, read> head_weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> scores: array<u32>;  // [row][key_count]
//@include attend/load.$UNITS.wgsl

const kNowhere: u32 = 0xffffffff;
const kBlockKeys: u32 = 64;
//@include attend/block_products.wgsl
//@include common/order_key.wgsl

var<workgroup> shares: array<f32, 1024>;  // [head][key]

struct Place {
  row: u32,
  first_head: u32,
  first_key: u32,
}

fn query_at(place: Place, head: u32) -> u32 {
  return params.q_offset + place.row * params.q_stride + (place.first_head + head) * params.head_dim;
}

fn key_at(place: Place, key: u32) -> u32 {
  let at = params.k_offset + (place.first_key + key - params.key_origin) * params.k_stride;
  return select(kNowhere, at, place.first_key + key < params.key_count);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let number = group.x + group.y * groups.x;
  if (number >= params.workgroups) {
    return;
  }
  var place = Place(number / params.block_count, 0u, (params.first_block + number % params.block_count) * kBlockKeys);
  if (place.first_key > params.first_position + place.row) {
    return;
  }
  let key = thread % kBlockKeys;
  var score = 0.0;
  for (var head = 0u; head < params.heads; head += kRows) {
    place.first_head = head;
    let count = min(kRows, params.heads - head);
    let products = block_products(place, count, thread, params.head_dim);
    for (var i = 0u; i < 4u; i++) {
      let row = thread / kBlockKeys + 4u * i;
      if (row < count) {
        shares[row * kBlockKeys + key] = max(products[i] * params.scale, 0.0);
      }
    }
    workgroupBarrier();
    if (thread < kBlockKeys) {
      for (var i = 0u; i < count; i++) {
        score = fma(head_weights[params.w_offset + place.row * params.w_stride + head + i], shares[i * kBlockKeys + key], score);
      }
    }
  }
  if (thread < kBlockKeys && place.first_key + key < params.key_count) {
    scores[place.row * params.key_count + place.first_key + key] = order_key(bitcast<u32>(score));
  }
}
