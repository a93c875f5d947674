// What the arithmetic units reach: independent f32 multiply-add chains in registers, no memory traffic to speak of.
// 8 vec4 accumulators per invocation: 64 operations an iteration. The result is stored so that nothing can be left out.
struct Params {
  iterations: u32,
  factor: f32,
  addend: f32,
  pad: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let factor = vec4<f32>(params.factor);
  let addend = vec4<f32>(params.addend);
  let start = f32(id.x & 255u) * 0.001;
  var a = vec4<f32>(start, start + 1.0, start + 2.0, start + 3.0);
  var b = a + 0.1;
  var c = a + 0.2;
  var d = a + 0.3;
  var e = a + 0.4;
  var f = a + 0.5;
  var g = a + 0.6;
  var h = a + 0.7;
  for (var i = 0u; i < params.iterations; i++) {
    a = fma(a, factor, addend);
    b = fma(b, factor, addend);
    c = fma(c, factor, addend);
    d = fma(d, factor, addend);
    e = fma(e, factor, addend);
    f = fma(f, factor, addend);
    g = fma(g, factor, addend);
    h = fma(h, factor, addend);
  }
  let sum = (a + b) + (c + d) + (e + f) + (g + h);
  out[id.x] = sum.x + sum.y + sum.z + sum.w;
}
