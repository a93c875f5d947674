// Rows between the two products, one a route, filled up with zeros; zero behind them too.
@group(0) @binding(1) var<storage, read> middle: array<vec4<f32>>;

fn input_row(route: u32) -> u32 {
  return route * params.middle_stride / 4u;
}

fn load_input(base: u32, quad: u32) -> vec4<f32> {
  if (quad * 4u >= params.middle_stride) {
    return vec4<f32>();
  }
  return middle[base + quad];
}
