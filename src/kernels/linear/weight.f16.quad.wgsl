// Weights of one row, read four at a time: two f16 per u32, low half first. Needs no f16 feature.
alias WeightUnit = vec2<u32>;
const kUnitQuads: u32 = 1u;

fn widen_0(unit: WeightUnit) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(unit.x), unpack2x16float(unit.y));
}
