// A product per head for at most $ROWS rows of x: bound by reading the weights, each read once. A workgroup makes 32 columns; 8 lanes share
// a column, each making one part of its sums at a time. Lane r then adds up the parts of row r, in order.
//@include common/weight_$DTYPE.wgsl
//@include linear/x.$ACCESS.wgsl
//@include head_linear/params.wgsl

const kXElement: u32 = $X_ELEMENT;
const kLanes: u32 = 8u;
const kColumns: u32 = 32u;
const kRows: u32 = $ROWS;

var<workgroup> parts: array<f32, $ROWS * 256>;  // [row][column][lane]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  if (index >= params.tiles_n) {
    return;
  }
  let lane = thread % kLanes;
  let column = index * kColumns + thread / kLanes;            // of the shard
  let weight_row = min(column, params.shard_rows - 1u);
  let head = (params.shard_first + weight_row) / params.head_cols;
  let w_base = weight_row * params.weight_quads;
//@for I $ROWS
  let x_base_${I} = row_and_head_of_x(min(${I}u, params.rows - 1u), head);
//@endfor
  let part_count = (params.weight_quads + kPartQuads - 1u) / kPartQuads;
  var total = 0.0;
  for (var first = 0u; first < part_count; first += kLanes) {
//@for I $ROWS
    var sum_${I} = 0.0;
//@endfor
    let quad_first = min((first + lane) * kPartQuads, params.weight_quads);
    let quad_last = min(quad_first + kPartQuads, params.weight_quads);
    for (var quad = quad_first; quad < quad_last; quad++) {
      let b = widen(weight[w_base + quad]);
//@for I $ROWS
      sum_${I} = add_products(load_x(x_base_${I}, quad), b, sum_${I});
//@endfor
    }
//@for I $ROWS
    parts[${I}u * 256u + thread] = sum_${I};
//@endfor
    workgroupBarrier();
    if (lane < kRows) {
      for (var part = 0u; part < min(kLanes, part_count - first); part++) {
        total += parts[lane * 256u + thread - lane + part];
      }
    }
    workgroupBarrier();
  }
  if (lane < kRows && lane < params.rows && column < params.shard_rows) {
    result[params.result_offset + lane * params.result_stride + params.shard_first + column] = total;
  }
}
