// out = x * rsqrt(mean(x^2) + epsilon) * weight. One workgroup a row; the squares are summed by a fixed tree, so a row's result depends on
// nothing but the row. UNIT is the element type of the bindings: f32, or vec4<f32> where every row starts at a multiple of four.
struct Params {
  cols: u32,  // in elements
  x_offset: u32,
  x_stride: u32,
  out_offset: u32,
  out_stride: u32,
  rows: u32,
  epsilon: f32,
  weight_bias: f32,  // 1 for the (1 + w) form, else 0
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> weight: array<$UNIT>;
@group(0) @binding(2) var<storage, read_write> out: array<$UNIT>;
@group(0) @binding(3) var<storage, read> x: array<$UNIT>;  //@if IN_PLACE=no

const kThreads: u32 = $THREADS;
const kWidth: u32 = $WIDTH;  // elements in a UNIT

var<workgroup> sums: array<f32, $THREADS>;

fn load(at: u32) -> $UNIT {
  return x[at];    //@if IN_PLACE=no
  return out[at];  //@if IN_PLACE=yes
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

  var sum = $UNIT(0.0);
  for (var i = thread; i < units; i += kThreads) {
    let value = load(x_at + i);
    sum = fma(value, value, sum);
  }
  sums[thread] = dot(sum, vec4<f32>(1.0));  //@if WIDTH=4
  sums[thread] = sum;                       //@if WIDTH=1
  for (var half = kThreads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) {
      sums[thread] += sums[thread + half];
    }
  }
  workgroupBarrier();
  let factor = 1.0 / sqrt(sums[0] / f32(params.cols) + params.epsilon);
  for (var i = thread; i < units; i += kThreads) {
    out[out_at + i] = load(x_at + i) * factor * (weight[i] + params.weight_bias);
  }
}
