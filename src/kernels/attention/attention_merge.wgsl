// Combines the parts of attention by log-sum-exp: prefix parts in order, then own parts in order; then the gate. One quad of a head a thread.
//@include common/logistic.wgsl
//@include attention/own_part_keys.wgsl
//@include attention/gated.$UNITS.wgsl
struct Params {
  query_heads: u32,
  head_dim: u32,
  first_row: u32,
  end_row: u32,
  prefix_parts: u32,
  sequence_count: u32,
  min_length: u32,  // rows of shorter sequences are left out
  count: u32,       // quads: rows * query_heads * head_dim / 4
  gate_offset: u32,  // elements, to row first_row
  gate_stride: u32,
  out_offset: u32,
  out_stride: u32,
  exponent_scale: f32,
  workgroups: u32,
  padding0: u32,
  padding1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> sequences: array<vec2<u32>>;  // (start, length)
@group(0) @binding(2) var<storage, read> prefix_partial: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> prefix_stats: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> own_partial: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> own_stats: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read> gates: array<$UNIT>;
@group(0) @binding(7) var<storage, read_write> out: array<$UNIT>;

// The sequence that holds a row: the last one that starts at or before it and is not empty.
fn sequence_of(row: u32) -> vec2<u32> {
  var first = 0u;
  var count = params.sequence_count;
  while (count > 1u) {
    let half = count / 2u;
    if (sequences[first + half].x <= row) {
      first += half;
      count -= half;
    } else {
      count = half;
    }
  }
  return sequences[first];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  let index = workgroup * 256u + thread;
  if (workgroup >= params.workgroups || index >= params.count) {
    return;
  }
  let quads = params.head_dim / 4u;
  let slot = index / quads;  // (row, head)
  let quad = index % quads;
  let row = slot / params.query_heads;
  let head = slot % params.query_heads;
  let pitch = (params.end_row - params.first_row) * params.query_heads;  // from part to part
  let span = sequence_of(params.first_row + row);
  if (span.y < params.min_length) {
    return;
  }
  let own_parts = (params.first_row + row - span.x) / own_part_keys(span.y) + 1u;

  var largest = own_stats[slot].x;
  for (var part = 0u; part < params.prefix_parts; part++) {
    largest = max(largest, prefix_stats[part * pitch + slot].x);
  }
  for (var part = 1u; part < own_parts; part++) {
    largest = max(largest, own_stats[part * pitch + slot].x);
  }
  var sum = 0.0;
  var total = vec4<f32>(0.0);
  for (var part = 0u; part < params.prefix_parts; part++) {
    let at = part * pitch + slot;
    let stat = prefix_stats[at];
    let weight = exp2((stat.x - largest) * params.exponent_scale);
    sum = fma(weight, stat.y, sum);
    total = fma(vec4<f32>(weight), prefix_partial[at * quads + quad], total);
  }
  for (var part = 0u; part < own_parts; part++) {
    let at = part * pitch + slot;
    let stat = own_stats[at];
    let weight = exp2((stat.x - largest) * params.exponent_scale);
    sum = fma(weight, stat.y, sum);
    total = fma(vec4<f32>(weight), own_partial[at * quads + quad], total);
  }
  let factor = 1.0 / sum;
  write_gated(params.gate_offset + row * params.gate_stride + (2u * head + 1u) * params.head_dim + 4u * quad,
              params.out_offset + row * params.out_stride + head * params.head_dim + 4u * quad, total * factor);
}
