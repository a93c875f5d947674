// RMSNorm (of w or 1 + w, or none) and rotate-half RoPE of the heads of a row; heads from norm_heads on are copied (values). 32 lanes share one head and
// sum its squares by a fixed tree; eight heads a workgroup. Two builds differ in what they write:
//   ROLE=queries  heads of the q_gate projection (a gate may lie behind every query), one result
//   ROLE=keys     keys | values, two results
//   ROLE=cache    as keys, both results parts of one buffer
struct Params {
  head_dim: u32,  // widths, offsets and strides in UNITs
  head_pitch: u32,  // from head to head in the input
  half: u32,        // rotary_dim / 2
  heads: u32,
  norm_heads: u32,
  rows: u32,
  in_offset: u32,
  in_stride: u32,
  cosine_offset: u32,
  cosine_stride: u32,
  sine_offset: u32,
  sine_stride: u32,
  out_offset: u32,
  out_stride: u32,
  copy_offset: u32,
  copy_stride: u32,
  workgroups: u32,
  epsilon: f32,
  weight_shift: f32,  // added to the weight
  normed: u32,        // 0: no norm, weight is not read
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<$UNIT>;
@group(0) @binding(2) var<storage, read> weight: array<$UNIT>;
@group(0) @binding(3) var<storage, read> cosine: array<$UNIT>;
@group(0) @binding(4) var<storage, read> sine: array<$UNIT>;
@group(0) @binding(5) var<storage, read_write> out: array<$UNIT>;
@group(0) @binding(6) var<storage, read_write> copied: array<$UNIT>;  //@if ROLE=keys

const kLanes: u32 = 32;
const kHeads: u32 = 8;  // heads a workgroup
const kWidth: u32 = $WIDTH;

var<workgroup> sums: array<f32, 256>;

fn normed(at: u32, i: u32, factor: f32) -> $UNIT {
  if (params.normed == 0u) {
    return x[at + i];
  }
  return x[at + i] * factor * (weight[i] + $UNIT(params.weight_shift));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  if (workgroup >= params.workgroups) {
    return;
  }
  let lane = thread % kLanes;
  let index = workgroup * kHeads + thread / kLanes;
  let row = index / params.heads;
  let head = index % params.heads;
  let inside = row < params.rows;
  let is_normed = inside && head < params.norm_heads;
  let x_at = params.in_offset + row * params.in_stride + head * params.head_pitch;

  var sum = $UNIT(0.0);
  if (is_normed) {
    for (var i = lane; i < params.head_dim; i += kLanes) {
      let value = x[x_at + i];
      sum = fma(value, value, sum);
    }
  }
  sums[thread] = dot(sum, vec4<f32>(1.0));  //@if WIDTH=4
  sums[thread] = sum;                       //@if WIDTH=1
  for (var step = kLanes / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (lane < step) {
      sums[thread] += sums[thread + step];
    }
  }
  workgroupBarrier();
  if (!inside) {
    return;
  }
  if (is_normed) {
    let factor = 1.0 / sqrt(sums[thread - lane] / f32(params.head_dim * kWidth) + params.epsilon);
    let out_at = params.out_offset + row * params.out_stride + head * params.head_dim;
    let cosine_at = params.cosine_offset + row * params.cosine_stride;
    let sine_at = params.sine_offset + row * params.sine_stride;
    for (var i = lane; i < params.head_dim; i += kLanes) {
      var value = normed(x_at, i, factor);
      if (i < params.half) {
        value = value * cosine[cosine_at + i] - normed(x_at, i + params.half, factor) * sine[sine_at + i];
      } else if (i < 2u * params.half) {
        let pair = i - params.half;
        value = value * cosine[cosine_at + pair] + normed(x_at, pair, factor) * sine[sine_at + pair];
      }
      out[out_at + i] = value;
    }
  } else {
    let copy_at = params.copy_offset + row * params.copy_stride + (head - params.norm_heads) * params.head_dim;
    for (var i = lane; i < params.head_dim; i += kLanes) {
      copied[copy_at + i] = x[x_at + i];  //@if ROLE=keys
      out[copy_at + i] = x[x_at + i];     //@if ROLE=cache
    }
  }
}
