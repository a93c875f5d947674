// The first product: pairs are the gate and the up row of a column of the middle.
//@include common/logistic.wgsl
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

fn weight_quads() -> u32 {
  return params.gate_up_quads;
}

fn matrix_offset() -> u32 {
  return 0u;
}

// Pairs that exist.
fn pair_count() -> u32 {
  return params.inner;
}

fn first_row(pair: u32) -> u32 {
  return pair;
}

fn second_row(pair: u32) -> u32 {
  return params.inner + pair;
}

fn activation(gate_sum: f32, up_sum: f32) -> f32 {
  if ((params.flags & flag_clamped) == 0u) {
    return gate_sum * logistic(gate_sum) * up_sum;
  }
  // Comparisons with a NaN are false: it stays.
  let gate = select(gate_sum, params.limit, gate_sum > params.limit);
  let up = select(select(up_sum, params.limit, up_sum > params.limit), -params.limit, up_sum < -params.limit);
  return gate * logistic(params.alpha * gate) * (up + 1.0);
}

fn store_pair(route: u32, record: u32, pair: u32, sums: vec2<f32>) {
  if (pair >= params.middle_stride) {
    return;
  }
  var value = 0.0;
  if (pair < params.inner) {
    var biased = sums;
    if ((params.flags & flag_bias) != 0u) {
      biased += vec2<f32>(bias_at(record + params.gate_up_bias, pair), bias_at(record + params.gate_up_bias, params.inner + pair));
    }
    value = activation(biased.x, biased.y);
  }
  result[route * params.middle_stride + pair] = value;
}
