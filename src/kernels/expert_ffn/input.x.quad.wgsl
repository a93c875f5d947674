// Rows of x that start at multiples of four elements and hold whole vec4s; zero behind them.
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;

fn input_row(route: u32) -> u32 {
  return (params.x_offset + route / params.top_k * params.x_stride) / 4u;
}

fn load_input(base: u32, quad: u32) -> vec4<f32> {
  if (quad * 4u >= params.hidden) {
    return vec4<f32>();
  }
  return x[base + quad];
}
