// The parameters of every linear kernel; the host writes them (LinearParams in linear_webgpu.h).
struct Params {
  rows: u32,          // of x and of the result
  cols: u32,          // of the result: rows of the weight's shard
  depth: u32,         // columns of x
  weight_quads: u32,  // padded columns of the weight / 4
  x_offset: u32,
  x_stride: u32,
  result_offset: u32,
  result_stride: u32,
  bias_offset: u32,
  flags: u32,
  tiles_m: u32,
  tiles_n: u32,
  splits: u32,
  split_quads: u32,   // vec4s of k per split, a multiple of the tile's step
  split_stride: u32,  // elements from one plane of partial sums to the next
  band: u32,
  normed_offset: u32,
  normed_stride: u32,
  epsilon: f32,
  norm_shift: f32,  // added to the norm's weight
}

const flag_bias: u32 = 1;
const flag_add: u32 = 2;

@group(0) @binding(0) var<uniform> params: Params;
