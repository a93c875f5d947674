// Results of one part: per (part, row, query head) the unnormalised weighted sum of V, and (largest score, sum of weights).
@group(0) @binding(5) var<storage, read_write> partial: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;

// Head columns 4 * lane .. and 4 * lane + 128 .. of one row.
fn write_row(block: Block, packed: u32, part: u32, lane: u32, largest: f32, sum: f32, low: vec4<f32>, high: vec4<f32>) {
  if (!has_row(block, packed)) {
    return;
  }
  let row = row_of(block, packed) - params.first_row;
  let slot = (part * (params.end_row - params.first_row) + row) * params.query_heads + head_of(block, packed);
  let quads = params.head_dim / 4u;
  if (lane == 0u) {
    stats[slot] = vec2<f32>(largest, sum);
  }
  if (lane < quads) {
    partial[slot * quads + lane] = low;
  }
  if (lane + 32u < quads) {
    partial[slot * quads + lane + 32u] = high;
  }
}
