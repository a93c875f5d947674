// out = value * sigmoid(gate) for the quads at element offsets that are multiples of four.
fn write_gated(gate_at: u32, out_at: u32, value: vec4<f32>) {
  out[out_at / 4u] = value * logistic4(gates[gate_at / 4u]);
}
