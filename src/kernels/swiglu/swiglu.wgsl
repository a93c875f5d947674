// out = silu(gate) * up, one UNIT of the result a thread. UNIT as in rms_norm.
//@include common/logistic.wgsl
struct Params {
  row_units: u32,  // result columns, in UNITs
  gate_offset: u32,  // offsets and strides in UNITs
  up_offset: u32,
  in_stride: u32,
  out_offset: u32,
  out_stride: u32,
  count: u32,  // rows * row_units
  workgroups: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gate_up: array<$UNIT>;
@group(0) @binding(2) var<storage, read_write> out: array<$UNIT>;

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
  let gate = gate_up[params.gate_offset + row * params.in_stride + col];
  let up = gate_up[params.up_offset + row * params.in_stride + col];
  out[params.out_offset + row * params.out_stride + col] = gate * logistic(gate) * up;   //@if WIDTH=1
  out[params.out_offset + row * params.out_stride + col] = gate * logistic4(gate) * up;  //@if WIDTH=4
}
