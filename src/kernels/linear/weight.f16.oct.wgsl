// Weights of one row, read eight at a time: two f16 per u32, low half first. Needs no f16 feature.
alias WeightUnit = vec4<u32>;
const kUnitQuads: u32 = 2u;

fn widen_0(unit: WeightUnit) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(unit.x), unpack2x16float(unit.y));
}

fn widen_1(unit: WeightUnit) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(unit.z), unpack2x16float(unit.w));
}
