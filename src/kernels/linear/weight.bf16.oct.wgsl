// Weights of one row, read eight at a time: two bf16 per u32, low half first. A bf16 is the upper half of an f32.
alias WeightUnit = vec4<u32>;
const kUnitQuads: u32 = 2u;

fn widen_0(unit: WeightUnit) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(unit.x << 16u, unit.x & 0xffff0000u, unit.y << 16u, unit.y & 0xffff0000u));
}

fn widen_1(unit: WeightUnit) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(unit.z << 16u, unit.z & 0xffff0000u, unit.w << 16u, unit.w & 0xffff0000u));
}
