// out = (x - mean) * rsqrt(variance + epsilon) * weight + bias. One workgroup a row; sums go by a fixed tree, the variance around the mean.
// UNIT is the element type of the bindings: f32, or vec4<f32> where every row starts at a multiple of four.
struct Params {
  cols: u32,  // in elements
  x_offset: u32,
  x_stride: u32,
  out_offset: u32,
  out_stride: u32,
  rows: u32,
  epsilon: f32,
  unused: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weight: array<$UNIT>;
@group(0) @binding(2) var<storage, read> bias: array<$UNIT>;
@group(0) @binding(3) var<storage, read_write> out: array<$UNIT>;
@group(0) @binding(4) var<storage, read> x: array<$UNIT>;  //@if IN_PLACE=no

const kThreads: u32 = $THREADS;
const kWidth: u32 = $WIDTH;  // elements in a UNIT

var<workgroup> sums: array<f32, $THREADS>;

fn load(at: u32) -> $UNIT {
  return x[at];    //@if IN_PLACE=no
  return out[at];  //@if IN_PLACE=yes
}

fn sum_over_row(thread: u32, part: $UNIT) -> f32 {
  workgroupBarrier();
  sums[thread] = dot(part, vec4<f32>(1.0));  //@if WIDTH=4
  sums[thread] = part;                       //@if WIDTH=1
  for (var half = kThreads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      sums[thread] += sums[thread + half];
    }
  }
  workgroupBarrier();
  return sums[0];
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let row = group.x + group.y * groups.x;
  if (row >= params.rows) {
    return;
  }
  let units = params.cols / kWidth;
  let x_at = (params.x_offset + row * params.x_stride) / kWidth;
  let out_at = (params.out_offset + row * params.out_stride) / kWidth;

  var part = $UNIT(0.0);
  for (var i = thread; i < units; i += kThreads) {
    part += load(x_at + i);
  }
  let mean = sum_over_row(thread, part) / f32(params.cols);
  part = $UNIT(0.0);
  for (var i = thread; i < units; i += kThreads) {
    let away = load(x_at + i) - mean;
    part = fma(away, away, part);
  }
  let factor = 1.0 / sqrt(sum_over_row(thread, part) / f32(params.cols) + params.epsilon);
  for (var i = thread; i < units; i += kThreads) {
    out[out_at + i] = (load(x_at + i) - mean) * factor * weight[i] + bias[i];
  }
}
