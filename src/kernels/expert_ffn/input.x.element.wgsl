// Rows of x at any offset, stride and width; zero behind them.
@group(0) @binding(1) var<storage, read> x: array<f32>;

fn input_row(route: u32) -> u32 {
  return params.x_offset + route / params.top_k * params.x_stride;
}

fn load_input(base: u32, quad: u32) -> vec4<f32> {
  let first = quad * 4u;
  var values = vec4<f32>();
  for (var part = 0u; part < 4u; part++) {
    if (first + part < params.hidden) {
      values[part] = x[base + first + part];
    }
  }
  return values;
}
