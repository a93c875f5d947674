// out = value * sigmoid(gate) for the quads at any element offsets.
fn write_gated(gate_at: u32, out_at: u32, value: vec4<f32>) {
  let gate = vec4<f32>(gates[gate_at], gates[gate_at + 1u], gates[gate_at + 2u], gates[gate_at + 3u]);
  let gated = value * logistic4(gate);
  out[out_at] = gated.x;
  out[out_at + 1u] = gated.y;
  out[out_at + 2u] = gated.z;
  out[out_at + 3u] = gated.w;
}
