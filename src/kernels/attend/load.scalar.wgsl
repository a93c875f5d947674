// Four elements of a row from column `col` on, at any element offset; zero behind the row's `dim` columns and for no row (kNowhere).
fn load_query(at: u32, col: u32, dim: u32) -> vec4<f32> {
  let present = (col + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(dim)) & vec4<bool>(at != kNowhere);
  let index = select(vec4<u32>(0u), at + col + vec4<u32>(0u, 1u, 2u, 3u), present);
  return select(vec4<f32>(0.0), vec4<f32>(queries[index.x], queries[index.y], queries[index.z], queries[index.w]), present);
}

fn load_key(at: u32, col: u32, dim: u32) -> vec4<f32> {
  let present = (col + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(dim)) & vec4<bool>(at != kNowhere);
  let index = select(vec4<u32>(0u), at + col + vec4<u32>(0u, 1u, 2u, 3u), present);
  return select(vec4<f32>(0.0), vec4<f32>(keys[index.x], keys[index.y], keys[index.z], keys[index.w]), present);
}
