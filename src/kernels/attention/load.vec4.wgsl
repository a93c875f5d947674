// Quads of the activations at element offset `at` (a multiple of four).
fn load_query(at: u32) -> vec4<f32> {
  return queries[at / 4u];
}

fn load_key(at: u32) -> vec4<f32> {
  return keys[at / 4u];
}

fn load_value(at: u32) -> vec4<f32> {
  return values[at / 4u];
}
