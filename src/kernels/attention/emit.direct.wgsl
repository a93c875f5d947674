// The only part of a row: normalised, gated and written to the output.
//@include common/logistic.wgsl
//@include attention/gated.$UNITS.wgsl
@group(0) @binding(5) var<storage, read> gates: array<$UNIT>;
@group(0) @binding(6) var<storage, read_write> out: array<$UNIT>;

// Four head columns of one row.
fn write_quad(block: Block, packed: u32, part: u32, quad: u32, largest: f32, sum: f32, value: vec4<f32>) {
  if (4u * quad >= params.head_dim || !has_row(block, packed)) {
    return;
  }
  let row = row_of(block, packed) - params.first_row;
  let head = head_of(block, packed);
  write_gated(params.gate_offset + row * params.gate_stride + (2u * head + 1u) * params.head_dim + 4u * quad,
              params.out_offset + row * params.out_stride + head * params.head_dim + 4u * quad, value * (1.0 / sum));
}
