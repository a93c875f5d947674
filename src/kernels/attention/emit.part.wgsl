// Results of one part: per (part, row, query head) the unnormalised weighted sum of V, and (largest score, sum of weights).
@group(0) @binding(5) var<storage, read_write> partial: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> stats: array<vec2<f32>>;

// Four head columns of one row.
fn write_quad(block: Block, packed: u32, part: u32, quad: u32, largest: f32, sum: f32, value: vec4<f32>) {
  let quads = params.head_dim / 4u;
  if (quad >= quads || !has_row(block, packed)) {
    return;
  }
  let row = row_of(block, packed) - params.first_row;
  let slot = (part * (params.end_row - params.first_row) + row) * params.query_heads + head_of(block, packed);
  partial[slot * quads + quad] = value;
  if (quad == 0u) {
    stats[slot] = vec2<f32>(largest, sum);
  }
}
