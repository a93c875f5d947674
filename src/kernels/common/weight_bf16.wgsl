// Four consecutive weights of one row, as stored: two bf16 per u32, low half first. A bf16 is the upper half of an f32.
alias WeightQuad = vec2<u32>;

fn widen(quad: WeightQuad) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(quad.x << 16u, quad.x & 0xffff0000u, quad.y << 16u, quad.y & 0xffff0000u));
}
