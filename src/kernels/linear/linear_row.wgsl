// out[m, n] (=|+=) sum_k x[m, k] * weight[n, k] + bias[n] for at most $ROWS rows of x: bound by reading the weights, each read once.
// A workgroup makes 4 columns of all rows; its invocations share k, and add their parts in workgroup memory in a fixed order.
// NORM=yes: x is normed on its way, out = rms_norm(x) weight^T: the factor of a row multiplies its sums, and its squares are added up beside
// them. Workgroups also write the normed rows, each its share.
//@include linear/weight.$DTYPE.$UNIT.wgsl
//@include linear/params.wgsl
//@include linear/x.$ACCESS.wgsl
//@include linear/result.$ACCESS.wgsl

@group(0) @binding(2) var<storage, read> weight: array<WeightUnit>;
@group(0) @binding(5) var<storage, read> norm_weight: array<vec4<f32>>;   //@if NORM=yes
@group(0) @binding(6) var<storage, read_write> normed: array<vec4<f32>>;  //@if NORM=yes

const kRows: u32 = $ROWS;
const kThreads: u32 = $THREADS;
const kThreadBits: u32 = $THREAD_BITS;
const kRoundRows: u32 = $ROUND_ROWS;
const kSquares: u32 = $SQUARES;  // vec4s of rows' sums of squares, which come first

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
  var sums: array<vec4<f32>, $SQUARES + $ROWS>;
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
    let a_${Q}_${I} = load_x(x_base_${I}, unit * kUnitQuads + ${Q}u);                                       //@if NORM=no
    let x_${Q}_${I} = load_x(x_base_${I}, unit * kUnitQuads + ${Q}u);                                       //@if NORM=yes
    let a_${Q}_${I} = x_${Q}_${I} * (norm_weight[unit * kUnitQuads + ${Q}u] + params.norm_shift);           //@if NORM=yes
    sums[${I}u / 4u][${I}u % 4u] = add_products(x_${Q}_${I}, x_${Q}_${I}, sums[${I}u / 4u][${I}u % 4u]);    //@if NORM=yes
//@for J 4
    sums[kSquares + ${I}u][${J}] = add_products(a_${Q}_${I}, b_${Q}_${J}, sums[kSquares + ${I}u][${J}]);
//@endfor
//@endfor
//@endfor
  }
  var factors: array<f32, $ROWS>;  //@if NORM=yes
  for (var first = 0u; first < kSquares + kRows; first += kRoundRows) {
    workgroupBarrier();
//@for G $ROUND_ROWS
    parts[${G}u * kThreads + thread] = sums[min(first + ${G}u, kSquares + kRows - 1u)];
//@endfor
    add_parts(thread);
    if (first == 0u) {                                                                                                   //@if NORM=yes
//@for I $ROWS
      factors[${I}] = 1.0 / sqrt(parts[${I}u / 4u * kThreads][${I}u % 4u] / f32(params.depth) + params.epsilon);         //@if NORM=yes
//@endfor
    }                                                                                                                    //@if NORM=yes
    let slot = first + thread;
    if (thread < kRoundRows && slot >= kSquares && slot - kSquares < params.rows) {
      let sum = parts[thread * kThreads];                                                                                //@if NORM=no
      let sum = parts[thread * kThreads] * factors[slot - kSquares];                                                     //@if NORM=yes
      store(slot - kSquares, first_n, 0u, sum);
    }
  }
  let quads = params.depth / 4u;                                                                                         //@if NORM=yes
  for (var at = index * kThreads + thread; at < quads; at += params.tiles_n * kThreads) {                                //@if NORM=yes
    let scale = norm_weight[at] + params.norm_shift;                                                                     //@if NORM=yes
//@for I $ROWS
    if (${I}u < params.rows) {                                                                                           //@if NORM=yes
      normed[(params.normed_offset + ${I}u * params.normed_stride) / 4u + at] = load_x(x_base_${I}, at) * factors[${I}] * scale;  //@if NORM=yes
    }                                                                                                                    //@if NORM=yes
//@endfor
  }                                                                                                                      //@if NORM=yes
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
