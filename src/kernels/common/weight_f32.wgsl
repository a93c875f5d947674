// Four consecutive weights of one row, as stored. A row is padded with zeros to a multiple of 4.
alias WeightQuad = vec4<f32>;

fn widen(quad: WeightQuad) -> vec4<f32> {
  return quad;
}
