// x at any offset, stride and width: element by element.
@group(0) @binding(1) var<storage, read> x: array<f32>;

fn row_of_x(row: u32) -> u32 {
  return params.x_offset + row * params.x_stride;
}

fn load_x(base: u32, quad: u32) -> vec4<f32> {
  let first = quad * 4u;
  var values = vec4<f32>();
  for (var part = 0u; part < min(params.depth - first, 4u); part++) {
    values[part] = x[base + first + part];
  }
  return values;
}
