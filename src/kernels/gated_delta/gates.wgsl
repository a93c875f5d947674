// Gates of the delta rule, accurate where the built-in exp and log are not promised to be.

// e^x to about one rounding, x clamped to [-87, 88]: range reduction by ln 2 in two parts, Taylor polynomial of degree 7.
fn exp_accurate(x: f32) -> f32 {
  let y = clamp(x, -87.0, 88.0);
  let n = round(y * 1.44269504);
  let r = fma(n, 2.12194440e-4, fma(n, -0.693359375, y));
  let tail = fma(r, fma(r, fma(r, fma(r, fma(r, 1.0 / 5040.0, 1.0 / 720.0), 1.0 / 120.0), 1.0 / 24.0), 1.0 / 6.0), 0.5);
  let p = fma(r * r, tail, r) + 1.0;
  return p * bitcast<f32>(u32(i32(n) + 127) << 23u);
}

// ln(1 + e^x): the logarithm as 2 atanh(e / (2 + e)), so that a tiny e is kept.
fn softplus(x: f32) -> f32 {
  let e = exp_accurate(-abs(x));
  let s = e / (2.0 + e);
  let z = s * s;
  let series = fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, 1.0 / 15.0, 1.0 / 13.0), 1.0 / 11.0), 1.0 / 9.0), 1.0 / 7.0),
                   1.0 / 5.0), 1.0 / 3.0), 1.0);
  return max(x, 0.0) + 2.0 * s * series;
}

// log2 of the decay, floored at -1024 (2^-1024 is zero in f32). The two caps keep the product finite; beyond them the floor is reached
// unless softplus is below 1e-16.
fn log2_decay(a_log: f32, a_plus_bias: f32) -> f32 {
  let product = exp_accurate(min(a_log, 43.0)) * min(softplus(a_plus_bias), 1e19);
  return max(-1.44269504 * product, -1024.0);
}

fn beta_of(b: f32) -> f32 {
  let e = exp_accurate(-abs(b));
  return select(e, 1.0, b >= 0.0) / (1.0 + e);
}

// 2^x for x <= 0; anything above counts as 0, anything under -126 gives zero.
fn exp2_nonpositive(x: f32) -> f32 { return select(exp2(clamp(x, -126.0, 0.0)), 0.0, x < -126.0); }
