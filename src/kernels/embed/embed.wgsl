// out[i, :] = table[ids[i], :] as f32, for the ids whose row lies in the bound shard of the table.
// One workgroup copies 256 columns of one row; an invocation takes four.
//@include common/weight_$DTYPE.wgsl

struct Params {
  rows: u32,
  cols: u32,
  quads_per_row: u32,   // padded columns of the table / 4
  table_rows: u32,      // of all shards
  shard_first_row: u32,
  shard_rows: u32,
  out_offset: u32,
  out_stride: u32,
  chunks_per_row: u32,
  first_row: u32,       // of the ids; rows count from here
  padding_1: u32,
  padding_2: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<WeightQuad>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  let row = index / params.chunks_per_row;
  let quad = (index % params.chunks_per_row) * 64u + lane;
  if (row >= params.rows || quad >= params.quads_per_row) {
    return;
  }
  // An id below the shard wraps to a large number: one comparison serves both ends.
  let shard_row = min(ids[params.first_row + row], params.table_rows - 1u) - params.shard_first_row;
  if (shard_row >= params.shard_rows) {
    return;
  }
  let values = widen(table[shard_row * params.quads_per_row + quad]);
  let target_at = params.out_offset + row * params.out_stride + quad * 4u;
  let count = min(params.cols - quad * 4u, 4u);
  for (var part = 0u; part < count; part++) {
    result[target_at + part] = values[part];
  }
}
