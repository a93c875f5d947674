// Four elements of a value row, as load.scalar.wgsl has them of queries and keys.
fn load_value(at: u32, col: u32, dim: u32) -> vec4<f32> {
  let present = (col + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(dim)) & vec4<bool>(at != kNowhere);
  let index = select(vec4<u32>(0u), at + col + vec4<u32>(0u, 1u, 2u, 3u), present);
  return select(vec4<f32>(0.0), vec4<f32>(values[index.x], values[index.y], values[index.z], values[index.w]), present);
}
