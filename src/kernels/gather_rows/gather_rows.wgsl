// out[i, :] = x[indices[i], :]. One workgroup copies 256 columns of one row.
struct Params {
  out_rows: u32,
  cols: u32,
  x_rows: u32,
  x_offset: u32,
  x_stride: u32,
  out_offset: u32,
  out_stride: u32,
  chunks_per_row: u32,
  first_row: u32,  // of the indices; rows count from here
  padding_0: u32,
  padding_1: u32,
  padding_2: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> indices: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  let row = index / params.chunks_per_row;
  let col = (index % params.chunks_per_row) * 256u + lane;
  if (row >= params.out_rows || col >= params.cols) {
    return;
  }
  let source = min(indices[params.first_row + row], params.x_rows - 1u);
  result[params.out_offset + row * params.out_stride + col] = x[params.x_offset + source * params.x_stride + col];
}
