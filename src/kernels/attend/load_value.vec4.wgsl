// Four elements of a value row, as load.vec4.wgsl has them of queries and keys.
fn load_value(at: u32, col: u32, dim: u32) -> vec4<f32> {
  let present = at != kNowhere && col < dim;
  return select(vec4<f32>(0.0), values[select(0u, (at + col) / 4u, present)], present);
}
