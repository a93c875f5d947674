// Four consecutive weights of one row, as stored: two f16 per u32, low half first. Needs no f16 feature.
alias WeightQuad = vec2<u32>;

fn widen(quad: WeightQuad) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(quad.x), unpack2x16float(quad.y));
}
