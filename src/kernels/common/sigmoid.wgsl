// Logistic function and SiLU. The exponent is capped so that no infinity is formed: below -88 the result is under 1e-38 either way.
fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(min(-x, 88.0))); }
fn silu(x: f32) -> f32 { return x * sigmoid(x); }
fn silu4(x: vec4<f32>) -> vec4<f32> { return x / (1.0 + exp(min(-x, vec4<f32>(88.0)))); }
