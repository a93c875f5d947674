// result[m, n] (=|+=) sum over splits of partial[split, m, n] + bias[n], added in the order of the splits. An invocation makes 4 columns.
// `x` holds the partial sums: planes of rows x x_stride, split_stride elements apart.
//@include linear/params.wgsl
//@include linear/x.$ACCESS.wgsl
//@include linear/result.$ACCESS.wgsl

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = (workgroup.x + workgroup.y * grid.x) * 64u + thread;
  let row = index / params.tiles_n;
  if (row >= params.rows) {
    return;
  }
  let quad = index % params.tiles_n;
  let base = row_of_x(row);
  var sum = load_x(base, quad);
  for (var split = 1u; split < params.splits; split++) {
    sum += load_x(base + split * params.split_stride / $ELEMENTS, quad);
  }
  store(row, quad * 4u, 0u, sum);
}
