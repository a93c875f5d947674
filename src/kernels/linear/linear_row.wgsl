// out[m, n] (=|+=) sum_k x[m, k] * weight[n, k] + bias[n] for at most 8 rows of x: bound by reading the weights, each read once.
// A workgroup makes 4 columns of all rows; its invocations share k, and add their parts in workgroup memory in a fixed order.
//@include common/weight_$DTYPE.wgsl
//@include linear/params.wgsl
//@include linear/x.$ACCESS.wgsl
//@include linear/result.$ACCESS.wgsl

@group(0) @binding(2) var<storage, read> weight: array<WeightQuad>;

const threads: u32 = 64;

var<workgroup> parts: array<vec4<f32>, 8 * threads>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  if (index >= params.tiles_n) {
    return;
  }
  let first_n = index * 4u;
//@for J 4
  let w_base_${J} = min(first_n + ${J}u, params.cols - 1u) * params.weight_quads;
//@endfor
//@for I 8
  let x_base_${I} = row_of_x(min(${I}u, params.rows - 1u));
  var sum_${I} = vec4<f32>();
//@endfor
  for (var quad = thread; quad < params.weight_quads; quad += threads) {
//@for J 4
    let b_${J} = widen(weight[w_base_${J} + quad]);
//@endfor
//@for I 8
    let a_${I} = load_x(x_base_${I}, quad);
//@for J 4
    sum_${I}[${J}] = fma(a_${I}.w, b_${J}.w, fma(a_${I}.z, b_${J}.z, fma(a_${I}.y, b_${J}.y, fma(a_${I}.x, b_${J}.x, sum_${I}[${J}]))));
//@endfor
//@endfor
  }
//@for I 8
  parts[${I}u * threads + thread] = sum_${I};
//@endfor
  workgroupBarrier();
  // Row thread / 8: each of its 8 invocations adds 8 neighbours, then the first adds the 8 sums.
  var sum = parts[thread * 8u];
  for (var part = 1u; part < 8u; part++) {
    sum += parts[thread * 8u + part];
  }
  workgroupBarrier();
  parts[thread] = sum;
  workgroupBarrier();
  if (thread >= params.rows || thread >= 8u) {
    return;
  }
  sum = parts[thread * 8u];
  for (var part = 1u; part < 8u; part++) {
    sum += parts[thread * 8u + part];
  }
  store(thread, first_n, 0u, sum);
}
