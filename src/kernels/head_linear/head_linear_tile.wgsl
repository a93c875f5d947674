// A product per head for many rows: tiles of 64 rows by 64 columns of one head, 4 by 4 an invocation. A step of k is one part of the sums.
//@include common/weight_$DTYPE.wgsl
//@include linear/x.$ACCESS.wgsl
//@include head_linear/params.wgsl

const kXElement: u32 = $X_ELEMENT;
const kTile: u32 = 64u;

var<workgroup> x_tile: array<vec4<f32>, 8 * 64>;  // [vec4 of k][row]
var<workgroup> w_tile: array<vec4<f32>, 8 * 64>;  // [vec4 of k][column]

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  if (index >= params.tiles_n * params.heads * params.tiles_m) {
    return;
  }
  let head = params.first_head + index / params.tiles_n % params.heads;
  let first_row = index / params.tiles_n / params.heads * kTile;
  let first_col = head * params.head_cols + index % params.tiles_n * kTile;  // of the whole weight
  let last_col = min((head + 1u) * params.head_cols, params.shard_first + params.shard_rows);

  // Loading: invocation t takes vec4 t % 8 of rows t / 8 and t / 8 + 32.
  let load_quad = thread % 8u;
  let load_at = thread / 8u;
//@for I 2
  let load_row_${I} = load_at + ${I}u * 32u;
  let x_base_${I} = row_and_head_of_x(min(first_row + load_row_${I}, params.rows - 1u), head);
  let w_base_${I} = (clamp(first_col + load_row_${I}, params.shard_first, last_col - 1u) - params.shard_first) * params.weight_quads;
//@endfor
  let at_col = thread % 16u;
  let at_row = thread / 16u;
//@for I 4
//@for J 4
  var total_${I}_${J} = 0.0;
//@endfor
//@endfor
  for (var step = 0u; step < params.weight_quads; step += kPartQuads) {
    let quad = step + load_quad;
//@for I 2
    var x_value_${I} = vec4<f32>();
    var w_value_${I} = vec4<f32>();
    if (quad < params.weight_quads) {
      x_value_${I} = load_x(x_base_${I}, quad);
      w_value_${I} = widen(weight[w_base_${I} + quad]);
    }
    x_tile[load_quad * kTile + load_row_${I}] = x_value_${I};
    w_tile[load_quad * kTile + load_row_${I}] = w_value_${I};
//@endfor
    workgroupBarrier();
//@for I 4
//@for J 4
    var sum_${I}_${J} = 0.0;
//@endfor
//@endfor
    for (var part = 0u; part < kPartQuads; part++) {
//@for J 4
      let b_${J} = w_tile[part * kTile + at_col + ${J}u * 16u];
//@endfor
//@for I 4
      let a_${I} = x_tile[part * kTile + at_row + ${I}u * 16u];
//@for J 4
      sum_${I}_${J} = add_products(a_${I}, b_${J}, sum_${I}_${J});
//@endfor
//@endfor
    }
//@for I 4
//@for J 4
    total_${I}_${J} += sum_${I}_${J};
//@endfor
//@endfor
    workgroupBarrier();
  }
//@for I 4
//@for J 4
  store(first_row + at_row + ${I}u * 16u, first_col + at_col + ${J}u * 16u, last_col, total_${I}_${J});
//@endfor
//@endfor
}

fn store(row: u32, col: u32, last_col: u32, value: f32) {
  if (row < params.rows && col >= params.shard_first && col < last_col) {
    result[params.result_offset + row * params.result_stride + col] = value;
  }
}
