// A pair of rows is made by 16 neighbouring invocations. The first adds up their parts: its sums are the pair's.
var<workgroup> parts: array<vec2<f32>, 64>;

fn add_up(own: vec2<f32>, thread: u32) -> vec2<f32> {
  parts[thread] = own;
  workgroupBarrier();
  var sums = own;
  if (thread % 16u == 0u) {
    for (var part = 1u; part < 16u; part++) {
      sums += parts[thread + part];
    }
  }
  return sums;
}
