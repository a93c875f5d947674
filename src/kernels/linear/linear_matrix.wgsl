// The product of linear through subgroup matrices of f16 with f32 sums. x is given as the sum of two f16 terms per element (linear_terms),
// the weight as $W_TERMS; the product is the sum of the products of terms, without second times second:
//   |error| <= (3 * 2^-22 + the roundings of an f32 sum) * sum |x w|, and for values below 2^-16 of their row's largest what ops.h adds.
// A workgroup makes $TILE_M x $TILE_N results with $SUBGROUPS_M x $SUBGROUPS_N subgroups of 32. Rows in workgroup memory are padded by one vec4
// against bank conflicts. Rows and columns past the edge repeat the last one and are not stored; k past the end counts as zero.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);

struct Params {
  rows: u32,
  cols: u32,
  octs: u32,     // vec4<u32>s of 8 halves in a row of x's planes and of the weight
  x_plane: u32,  // vec4<u32>s from one plane of terms to the next
  w_plane: u32,
  result_offset: u32,
  result_stride: u32,
  bias_offset: u32,
  flags: u32,
  tiles_m: u32,
  tiles_n: u32,
  splits: u32,
  split_octs: u32,    // of k per split, a multiple of the step
  split_stride: u32,  // elements from one plane of partial sums to the next
  band: u32,
  padding: u32,
}

const flag_bias: u32 = 1;
const flag_add: u32 = 2;
const flag_weight_scales: u32 = 4;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
//@include linear/result.$ACCESS.wgsl
@group(0) @binding(5) var<storage, read> x_scales: array<f32>;
@group(0) @binding(6) var<storage, read> weight_scales: array<f32>;

const tile_m: u32 = $TILE_M;
const tile_n: u32 = $TILE_N;
const step_octs: u32 = 4;
const row_slots: u32 = step_octs + 1;
const threads: u32 = 32 * $SUBGROUPS_M * $SUBGROUPS_N;
const subgroup_m: u32 = tile_m / $SUBGROUPS_M;
const subgroup_n: u32 = tile_n / $SUBGROUPS_N;
const load_step: u32 = threads / step_octs;  // rows between two loads of one invocation
const stage_slots: u32 = subgroup_n / 4;     // vec4s in a row of one subgroup's results
const x_slots: u32 = max(2 * tile_m * row_slots, $SUBGROUPS_M * $SUBGROUPS_N * 16 * stage_slots);

var<workgroup> tile_x: array<vec4<u32>, x_slots>;  // then, the results of 16 rows per subgroup
var<workgroup> tile_w: array<vec4<u32>, $W_TERMS * tile_n * row_slots>;

fn scaled(row: u32, col: u32, value: vec4<f32>) -> vec4<f32> {
  let by_row = value * x_scales[row];
  if ((params.flags & flag_weight_scales) == 0u) {
    return by_row;
  }
  let last = params.cols - 1u;
  return by_row * vec4<f32>(weight_scales[min(col, last)], weight_scales[min(col + 1u, last)], weight_scales[min(col + 2u, last)],
                            weight_scales[min(col + 3u, last)]);
}

@compute @workgroup_size(32 * $SUBGROUPS_M * $SUBGROUPS_N)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32, @builtin(subgroup_id) subgroup: u32,
        @builtin(subgroup_invocation_id) lane: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  let tiles = params.tiles_m * params.tiles_n;
  if (index >= tiles * params.splits) {
    return;
  }
  let split = index / tiles;
  let tile = index % tiles;
  let band = tile / (params.band * params.tiles_n);
  let in_band = tile % (params.band * params.tiles_n);
  let band_rows = min(params.band, params.tiles_m - band * params.band);
  let first_m = (band * params.band + in_band % band_rows) * tile_m;
  let first_n = (in_band / band_rows) * tile_n;
  let oct_end = min((split + 1u) * params.split_octs, params.octs);

  let load_row = thread / step_octs;
  let load_oct = thread % step_octs;
//@for P $X_LOADS
  let x_base_${P} = min(first_m + load_row + ${P}u * load_step, params.rows - 1u) * params.octs;
  let x_slot_${P} = (load_row + ${P}u * load_step) * row_slots + load_oct;
//@for T 2
  var next_x_${P}_${T} = vec4<u32>();
//@endfor
//@endfor
//@for P $W_LOADS
  let w_base_${P} = min(first_n + load_row + ${P}u * load_step, params.cols - 1u) * params.octs;
  let w_slot_${P} = (load_row + ${P}u * load_step) * row_slots + load_oct;
//@for T $W_TERMS
  var next_w_${P}_${T} = vec4<u32>();
//@endfor
//@endfor

  let m_in_tile = (subgroup / $SUBGROUPS_N) * subgroup_m;
  let n_in_tile = (subgroup % $SUBGROUPS_N) * subgroup_n;
//@for I $MATRICES_M
//@for J $MATRICES_N
  var sum_${I}_${J} = subgroup_matrix_result<f32, 16, 16>();
//@endfor
//@endfor

  var step = split * params.split_octs;
  var oct = step + load_oct;
  if (oct < oct_end) {
//@for P $X_LOADS
//@for T 2
    next_x_${P}_${T} = x[${T}u * params.x_plane + x_base_${P} + oct];
//@endfor
//@endfor
//@for P $W_LOADS
//@for T $W_TERMS
    next_w_${P}_${T} = weight[${T}u * params.w_plane + w_base_${P} + oct];
//@endfor
//@endfor
  }
  while (step < oct_end) {
//@for T 2
//@for P $X_LOADS
    tile_x[${T}u * tile_m * row_slots + x_slot_${P}] = next_x_${P}_${T};
//@endfor
//@endfor
//@for T $W_TERMS
//@for P $W_LOADS
    tile_w[${T}u * tile_n * row_slots + w_slot_${P}] = next_w_${P}_${T};
//@endfor
//@endfor
    workgroupBarrier();
    step += step_octs;
    oct += step_octs;
    if (oct < oct_end) {
//@for P $X_LOADS
//@for T 2
      next_x_${P}_${T} = x[${T}u * params.x_plane + x_base_${P} + oct];
//@endfor
//@endfor
//@for P $W_LOADS
//@for T $W_TERMS
      next_w_${P}_${T} = weight[${T}u * params.w_plane + w_base_${P} + oct];
//@endfor
//@endfor
    } else {
//@for P $X_LOADS
//@for T 2
      next_x_${P}_${T} = vec4<u32>();
//@endfor
//@endfor
//@for P $W_LOADS
//@for T $W_TERMS
      next_w_${P}_${T} = vec4<u32>();
//@endfor
//@endfor
    }
    for (var slot = 0u; slot < step_octs; slot += 2u) {  //@if UNROLLED=1
//@for S $UNROLLED
    {
      let slot = ${S}u * 2u;  //@if UNROLLED!=1
//@for I $MATRICES_M
//@for T 2
      let a_${I}_${T} = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&tile_x, (${T}u * tile_m + m_in_tile + ${I}u * 16u) * row_slots + slot, row_slots);
//@endfor
//@endfor
//@for J $MATRICES_N
//@for T $W_TERMS
      let b_${J}_${T} = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, col_major>(&tile_w, (${T}u * tile_n + n_in_tile + ${J}u * 16u) * row_slots + slot, row_slots);
//@endfor
//@for I $MATRICES_M
      sum_${I}_${J} = subgroupMatrixMultiplyAccumulate(a_${I}_0, b_${J}_1, sum_${I}_${J});  //@if W_TERMS=2
//@endfor
//@for I $MATRICES_M
      sum_${I}_${J} = subgroupMatrixMultiplyAccumulate(a_${I}_1, b_${J}_0, sum_${I}_${J});
//@endfor
//@for I $MATRICES_M
      sum_${I}_${J} = subgroupMatrixMultiplyAccumulate(a_${I}_0, b_${J}_0, sum_${I}_${J});
//@endfor
//@endfor
    }
//@endfor
    }  //@if UNROLLED=1
    workgroupBarrier();
  }

  let stage = subgroup * 16u * stage_slots;
//@for I $MATRICES_M
//@for J $MATRICES_N
  subgroupMatrixStore<row_major>(&tile_x, stage + ${J}u * 4u, sum_${I}_${J}, stage_slots);
//@endfor
  workgroupBarrier();
  for (var at = lane; at < 16u * stage_slots; at += 32u) {
    let m = first_m + m_in_tile + ${I}u * 16u + at / stage_slots;
    let n = first_n + n_in_tile + (at % stage_slots) * 4u;
    if (m < params.rows && n < params.cols) {
      store(m, n, split, scaled(m, n, bitcast<vec4<f32>>(tile_x[stage + at])));
    }
  }
  workgroupBarrier();
//@endfor
}
