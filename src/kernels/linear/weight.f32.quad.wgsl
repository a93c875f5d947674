// Weights of one row, read four at a time, as stored.
alias WeightUnit = vec4<f32>;
const kUnitQuads: u32 = 1u;

fn widen_0(unit: WeightUnit) -> vec4<f32> {
  return unit;
}
