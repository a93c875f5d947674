// 16 bytes of a weight row: eight f16, two per u32, low half first.
const unit_quads: u32 = 2;  // vec4s of x that meet one

fn widen(unit: vec4<u32>, quad: u32) -> vec4<f32> {
  let pair = select(unit.xy, unit.zw, quad == 1u);
  return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
}
