// 1 / (1 + exp(-x)) without forming an exponential that overflows.
fn logistic(x: f32) -> f32 {
  let small = exp(-abs(x));
  return select(small, 1.0, x >= 0.0) / (1.0 + small);
}

fn logistic4(x: vec4<f32>) -> vec4<f32> {
  let small = exp(-abs(x));
  return select(small, vec4<f32>(1.0), x >= vec4<f32>(0.0)) / (vec4<f32>(1.0) + small);
}
