// The only part of a row: normalised, gated and written to the output.
//@include common/logistic.wgsl
//@include attention/gated.$UNITS.wgsl
@group(0) @binding(5) var<storage, read> gates: array<$UNIT>;
@group(0) @binding(6) var<storage, read_write> out: array<$UNIT>;

// Head columns 4 * lane .. and 4 * lane + 128 .. of one row.
fn write_row(block: Block, packed: u32, part: u32, lane: u32, largest: f32, sum: f32, low: vec4<f32>, high: vec4<f32>) {
  if (!has_row(block, packed)) {
    return;
  }
  let row = row_of(block, packed) - params.first_row;
  let head = head_of(block, packed);
  let gate_at = params.gate_offset + row * params.gate_stride + (2u * head + 1u) * params.head_dim + 4u * lane;
  let out_at = params.out_offset + row * params.out_stride + head * params.head_dim + 4u * lane;
  let factor = 1.0 / sum;
  if (4u * lane < params.head_dim) {
    write_gated(gate_at, out_at, low * factor);
  }
  if (4u * lane + 128u < params.head_dim) {
    write_gated(gate_at + 128u, out_at + 128u, high * factor);
  }
}
