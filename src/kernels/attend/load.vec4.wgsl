// Four elements of a row from column `col` on (all offsets are multiples of four); zero behind the row's `dim` columns and for no row.
fn load_query(at: u32, col: u32, dim: u32) -> vec4<f32> {
  let present = at != kNowhere && col < dim;
  return select(vec4<f32>(0.0), queries[select(0u, (at + col) / 4u, present)], present);
}

fn load_key(at: u32, col: u32, dim: u32) -> vec4<f32> {
  let present = at != kNowhere && col < dim;
  return select(vec4<f32>(0.0), keys[select(0u, (at + col) / 4u, present)], present);
}
