// Per (row, head): out = x * rsqrt(mean(x^2) + epsilon) * weight * silu(gate). A workgroup serves 8 (row, head) pairs, 32 lanes each.
// Offsets, strides and the head width are in units of $WIDTH elements.
struct Params {
  items: u32,        // rows * heads
  heads: u32,
  head_width: u32,   // head_dim / $WIDTH
  head_dim: u32,
  x_offset: u32,
  x_stride: u32,
  gate_offset: u32,
  gate_stride: u32,
  out_offset: u32,
  out_stride: u32,
  epsilon: f32,
  unused: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gate: array<$TYPE>;
@group(0) @binding(2) var<storage, read> weight: array<$TYPE>;
@group(0) @binding(3) var<storage, read_write> output: array<$TYPE>;
@group(0) @binding(4) var<storage, read> x: array<$TYPE>;  //@if IN_PLACE=no

//@include common/logistic.wgsl

const kLanes = 32u;
const kItems = 8u;
var<workgroup> partial: array<f32, 256>;

fn load(index: u32) -> $TYPE {
  return x[index];  //@if IN_PLACE=no
  return output[index];  //@if IN_PLACE=yes
}

fn square(value: $TYPE) -> f32 {
  return dot(value, value);  //@if WIDTH=4
  return value * value;  //@if WIDTH=1
}

fn activate(value: $TYPE) -> $TYPE {
  return value * logistic4(value);  //@if WIDTH=4
  return value * logistic(value);  //@if WIDTH=1
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let item = (group.x + group.y * groups.x) * kItems + thread / kLanes;
  let lane = thread % kLanes;
  let live = item < params.items;
  let row = item / params.heads;
  let column = (item % params.heads) * params.head_width;
  let x_base = params.x_offset + row * params.x_stride + column;

  var squares = 0.0;
  if (live) {
    for (var i = lane; i < params.head_width; i += kLanes) { squares += square(load(x_base + i)); }
  }
  partial[thread] = squares;
  for (var step = kLanes / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (lane < step) { partial[thread] += partial[thread + step]; }
  }
  workgroupBarrier();
  if (!live) { return; }
  let scale = inverseSqrt(partial[thread - lane] / f32(params.head_dim) + params.epsilon);
  let gate_base = params.gate_offset + row * params.gate_stride + column;
  let out_base = params.out_offset + row * params.out_stride + column;
  for (var i = lane; i < params.head_width; i += kLanes) {
    output[out_base + i] = load(x_base + i) * scale * weight[i] * activate(gate[gate_base + i]);
  }
}
