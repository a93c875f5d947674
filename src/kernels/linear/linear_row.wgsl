// out[m, n] (=|+=) sum_k x[m, k] * weight[n, k] + bias[n] for at most $ROWS rows of x: bound by reading the weights, each read once.
// A workgroup makes 4 columns of all rows; its invocations share k, and add their parts in workgroup memory in a fixed order.
//@include linear/weight.$DTYPE.$UNIT.wgsl
//@include linear/params.wgsl
//@include linear/x.$ACCESS.wgsl
//@include linear/result.$ACCESS.wgsl

@group(0) @binding(2) var<storage, read> weight: array<WeightUnit>;

const kRows: u32 = $ROWS;
const kThreads: u32 = $THREADS;
const kThreadBits: u32 = $THREAD_BITS;
const kRoundRows: u32 = $ROUND_ROWS;

var<workgroup> parts: array<vec4<f32>, $ROUND_ROWS * $THREADS>;

fn add_products(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  if (index >= params.tiles_n) {
    return;
  }
  let first_n = index * 4u;
  let units = params.weight_quads / kUnitQuads;
//@for J 4
  let w_base_${J} = min(first_n + ${J}u, params.cols - 1u) * units;
//@endfor
  var sums: array<vec4<f32>, $ROWS>;
//@for I $ROWS
  let x_base_${I} = row_of_x(min(${I}u, params.rows - 1u));
//@endfor
  for (var unit = thread; unit < units; unit += kThreads) {
//@for J 4
    let w_${J} = weight[w_base_${J} + unit];
//@endfor
//@for Q $UNIT_QUADS
//@for J 4
    let b_${Q}_${J} = widen_${Q}(w_${J});
//@endfor
//@for I $ROWS
    let a_${Q}_${I} = load_x(x_base_${I}, unit * kUnitQuads + ${Q}u);
//@for J 4
    sums[${I}][${J}] = add_products(a_${Q}_${I}, b_${Q}_${J}, sums[${I}][${J}]);
//@endfor
//@endfor
//@endfor
  }
  for (var first_row = 0u; first_row < kRows; first_row += kRoundRows) {
    workgroupBarrier();
//@for G $ROUND_ROWS
    parts[${G}u * kThreads + thread] = sums[first_row + ${G}u];
//@endfor
    add_parts(thread);
    if (thread < kRoundRows && first_row + thread < params.rows) {
      store(first_row + thread, first_n, 0u, parts[thread * kThreads]);
    }
  }
}

// Leaves the sum of a row's parts in its first, by a fixed tree of fours.
fn add_parts(thread: u32) {
  for (var bits = kThreadBits; bits > 0u; bits -= 2u) {
    let quarter = 1u << (bits - 2u);
    workgroupBarrier();
    for (var item = thread; item < kRoundRows * quarter; item += kThreads) {
      let at = (item >> (bits - 2u)) * kThreads + (item & (quarter - 1u));
      parts[at] = (parts[at] + parts[at + quarter]) + (parts[at + 2u * quarter] + parts[at + 3u * quarter]);
    }
  }
  workgroupBarrier();
}
