// out += weighted routes in rank order, then the shared expert; one UNIT of the result a thread. UNIT as in rms_norm.
//@include common/logistic.wgsl
struct Params {
  row_units: u32,  // result columns, in UNITs
  top_k: u32,
  routed_offset: u32,  // offsets and strides of routed, shared and out in UNITs
  routed_stride: u32,
  shared_offset: u32,
  shared_stride: u32,
  gate_offset: u32,
  gate_stride: u32,
  out_offset: u32,
  out_stride: u32,
  route_first: u32,  // of the slice, in `weights`
  flags: u32,
  count: u32,  // rows * row_units
  workgroups: u32,
  padding_0: u32,
  padding_1: u32,
}

const flag_shared: u32 = 1;
const flag_gate: u32 = 2;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> routed: array<$UNIT>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read> shared_rows: array<$UNIT>;
@group(0) @binding(4) var<storage, read> gates: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<$UNIT>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  let index = workgroup * 256u + thread;
  if (workgroup >= params.workgroups || index >= params.count) {
    return;
  }
  let row = index / params.row_units;
  let col = index % params.row_units;
  var sum = $UNIT(0.0);
  for (var rank = 0u; rank < params.top_k; rank++) {
    let route = row * params.top_k + rank;
    sum = fma($UNIT(weights[params.route_first + route]), routed[params.routed_offset + route * params.routed_stride + col], sum);
  }
  let at = params.out_offset + row * params.out_stride + col;
  sum += out[at];
  if ((params.flags & flag_shared) != 0u) {
    var factor = 1.0;
    if ((params.flags & flag_gate) != 0u) {
      factor = logistic(gates[params.gate_offset + row * params.gate_stride]);
    }
    sum = fma($UNIT(factor), shared_rows[params.shared_offset + row * params.shared_stride + col], sum);
  }
  out[at] = sum;
}
