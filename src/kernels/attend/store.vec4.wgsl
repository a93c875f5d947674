// Four columns of an output row from `col` on; all offsets are multiples of four.
fn store_out(at: u32, col: u32, dim: u32, quad: vec4<f32>) {
  out[(at + col) / 4u] = quad;
}
