// Joins the blocks of a row in their order and, behind the last one, normalises the row. A thread takes four columns of one row and head.
// Blocks may come in several rounds; what is gathered waits in scratch between them.
struct Params {
  query_heads: u32,
  value_dim: u32,
  rows: u32,         // of the slice
  block_count: u32,  // of this round
  first_round: u32,  // 1: nothing was gathered before
  last_round: u32,   // 1: rows are complete
  has_sinks: u32,
  out_offset: u32,  // elements, to the slice's first row
  out_stride: u32,
  exponent_scale: f32,  // scale * log2(e)
  workgroups: u32,
  padding0: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> sums: array<vec4<f32>>;   // [block][row][query head][value quads]
@group(0) @binding(2) var<storage, read> stats: array<vec2<f32>>;  // [block][row][query head]
@group(0) @binding(3) var<storage, read> sinks: array<f32>;
@group(0) @binding(4) var<storage, read_write> gathered_sums: array<vec4<f32>>;   // [row][query head][value quads]
@group(0) @binding(5) var<storage, read_write> gathered_stats: array<vec2<f32>>;  // one per four columns, so that no thread waits
@group(0) @binding(6) var<storage, read_write> out: array<$UNIT>;
//@include attend/merge.wgsl
//@include attend/store.$UNITS.wgsl

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  let quads = (params.value_dim + 3u) / 4u;
  let slots = params.rows * params.query_heads;
  let index = workgroup * 64u + thread;
  if (workgroup >= params.workgroups || index >= slots * quads) {
    return;
  }
  let slot = index / quads;
  let quad = index % quads;
  var largest = kMasked;
  var weight_sum = 0.0;
  var sum = vec4<f32>(0.0);
  if (params.first_round == 0u) {
    sum = gathered_sums[index];
    largest = gathered_stats[index].x;
    weight_sum = gathered_stats[index].y;
  }
  // Four blocks are on their way at once. One whose row saw nothing has no sums: what is read there is dropped.
  for (var first = 0u; first < params.block_count; first += 4u) {
//@for B 4
    let at${B} = min(first + ${B}u, params.block_count - 1u) * slots + slot;
    let stat${B} = stats[at${B}];
    let sum${B} = sums[at${B} * quads + quad];
//@endfor
//@for B 4
    if (first + ${B}u < params.block_count && !(stat${B}.x <= kMasked)) {
      let factors = merge_factors(largest, stat${B}.x, params.exponent_scale);
      weight_sum = fma(stat${B}.y, factors.y, weight_sum * factors.x);
      sum = fma(sum${B}, vec4<f32>(factors.y), sum * factors.x);
      largest = max(largest, stat${B}.x);
    }
//@endfor
  }
  if (params.last_round == 0u) {
    gathered_sums[index] = sum;
    gathered_stats[index] = vec2<f32>(largest, weight_sum);
    return;
  }
  let head = slot % params.query_heads;
  var sink = 0.0;
  if (params.has_sinks == 1u) {
    sink = sinks[head];
  }
  let factor = normaliser(largest, weight_sum, params.exponent_scale, params.has_sinks == 1u, sink);
  store_out(params.out_offset + slot / params.query_heads * params.out_stride + head * params.value_dim, 4u * quad, params.value_dim,
            sum * factor);
}
