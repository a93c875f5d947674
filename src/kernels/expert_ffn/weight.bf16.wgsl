// 16 bytes of a weight row: eight bf16, two per u32, low half first.
const unit_quads: u32 = 2;  // vec4s of x that meet one

fn widen(unit: vec4<u32>, quad: u32) -> vec4<f32> {
  let pair = select(unit.xy, unit.zw, quad == 1u);
  return bitcast<vec4<f32>>(vec4<u32>(pair.x << 16u, pair.x & 0xffff0000u, pair.y << 16u, pair.y & 0xffff0000u));
}
