// 16 bytes of a weight row: four f32.
const unit_quads: u32 = 1;  // vec4s of x that meet one

fn widen(unit: vec4<u32>, quad: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(unit);
}
