// Four columns of an output row from `col` on; those behind its `dim` columns are left out.
fn store_out(at: u32, col: u32, dim: u32, quad: vec4<f32>) {
  for (var i = 0u; i < min(4u, dim - col); i++) {
    out[at + col + i] = quad[i];
  }
}
