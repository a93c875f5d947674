// Quads of the activations at any element offset `at`.
fn load_query(at: u32) -> vec4<f32> {
  return vec4<f32>(queries[at], queries[at + 1u], queries[at + 2u], queries[at + 3u]);
}

fn load_key(at: u32) -> vec4<f32> {
  return vec4<f32>(keys[at], keys[at + 1u], keys[at + 2u], keys[at + 3u]);
}

fn load_value(at: u32) -> vec4<f32> {
  return vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]);
}
