// x where every row starts at a multiple of four elements and holds whole vec4s.
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;

fn row_of_x(row: u32) -> u32 {
  return (params.x_offset + row * params.x_stride) / 4u;
}

fn load_x(base: u32, quad: u32) -> vec4<f32> {
  return x[base + quad];
}
