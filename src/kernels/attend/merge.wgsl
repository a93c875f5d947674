// Joins what a row has gathered with the next block of keys: both are sums relative to their largest score. x: factor of what was gathered,
// y: factor of the block. A block without visible keys changes nothing.
const kMasked: f32 = -1e30;

fn merge_factors(gathered: f32, block: f32, exponent_scale: f32) -> vec2<f32> {
  if (block <= kMasked) {
    return vec2<f32>(1.0, 0.0);
  }
  let top = max(gathered, block);
  return exp2(vec2<f32>(gathered - top, block - top) * exponent_scale);
}

// The factor that normalises a row: one over its sum of weights, which includes the sink's.
fn normaliser(largest: f32, sum: f32, exponent_scale: f32, has_sink: bool, sink: f32) -> f32 {
  if (sum == 0.0) {
    return 0.0;  // no key was seen, against the promise
  }
  if (!has_sink) {
    return 1.0 / sum;
  }
  let exponent = largest * exponent_scale;
  let sink_exponent = sink * 1.4426950408889634;
  let top = max(exponent, sink_exponent);
  let shrunk = exp2(exponent - top);
  return shrunk / fma(sum, shrunk, exp2(sink_exponent - top));
}
