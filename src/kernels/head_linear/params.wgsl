// The parameters of both head_linear kernels; the host writes them (HeadLinearParams in head_linear_webgpu.h).
struct Params {
  rows: u32,            // of x and of the result
  head_cols: u32,       // weight rows of a head
  depth: u32,           // columns of the weight
  weight_quads: u32,    // padded columns of the weight / 4
  x_offset: u32,
  x_stride: u32,
  x_head_stride: u32,
  result_offset: u32,
  result_stride: u32,
  shard_first: u32,     // weight row where the bound shard begins
  shard_rows: u32,
  first_head: u32,      // of those with rows in the shard
  heads: u32,
  tiles_m: u32,
  tiles_n: u32,         // row kernel: of the shard; tile kernel: of a head
  unused: u32,
}

// The order of every sum, in both kernels: products one after the other inside parts of 8 vec4s of k, and the parts one after the other.
const kPartQuads: u32 = 8u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> weight: array<WeightQuad>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

fn add_products(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

fn row_and_head_of_x(row: u32, head: u32) -> u32 {
  return row_of_x(row) + head * params.x_head_stride / kXElement;
}
