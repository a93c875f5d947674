// The second product: pairs are two neighbouring columns of the result.
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

fn weight_quads() -> u32 {
  return params.down_quads;
}

fn matrix_offset() -> u32 {
  return params.down_offset;
}

fn pair_count() -> u32 {
  return (params.hidden + 1u) / 2u;
}

fn first_row(pair: u32) -> u32 {
  return pair * 2u;
}

fn second_row(pair: u32) -> u32 {
  return min(pair * 2u + 1u, params.hidden - 1u);
}

fn store_one(route: u32, record: u32, col: u32, sum: f32) {
  if (col >= params.hidden) {
    return;
  }
  var value = sum;
  if ((params.flags & flag_bias) != 0u) {
    value += bias_at(record + params.down_bias, col);
  }
  result[params.out_offset + route * params.out_stride + col] = value;
}

fn store_pair(route: u32, record: u32, pair: u32, sums: vec2<f32>) {
  store_one(route, record, pair * 2u, sums.x);
  store_one(route, record, pair * 2u + 1u, sums.y);
}
