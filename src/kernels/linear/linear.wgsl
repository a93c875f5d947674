// out[m, n] (=|+=) sum_k x[m, k] * weight[n, k] + bias[n], one workgroup per tile of $TILE_M x $TILE_N results.
//
// Both operands are stored with k innermost, so tiles keep that order in workgroup memory: a vec4 is four k of one row, and nothing is
// transposed. The invocations form warps of 8 x 4; each holds $ROWS rows (8 apart) x $COL_QUADS * 4 columns (4 adjacent, groups 16
// apart) of the tile.
// A row's vec4s are permuted by an exclusive or with bits of the row, so that the rows that a warp reads together lie in different banks.
// The next slice of k is loaded into registers while the present one is multiplied.
//
// Rows and columns past the edge repeat the last one and are not stored; k past the end counts as zero. With splits > 1 the tiles of one
// range of k go to one plane of `result` (then a scratch buffer), and linear_reduce adds the planes in order.
//@include common/weight_$DTYPE.wgsl
//@include linear/params.wgsl
//@include linear/x.$ACCESS.wgsl
//@include linear/result.$ACCESS.wgsl

@group(0) @binding(2) var<storage, read> weight: array<WeightQuad>;

const tile_m: u32 = $TILE_M;
const tile_n: u32 = $TILE_N;
const quads: u32 = $QUADS;  // vec4s of k per step
const threads: u32 = $THREADS;
const warps_n: u32 = $WARPS_N;
const warp_m: u32 = 8 * $ROWS;
const warp_n: u32 = 16 * $COL_QUADS;
const load_step: u32 = threads / quads;  // rows between two loads of one invocation

var<workgroup> tile_x: array<vec4<f32>, tile_m * quads>;
var<workgroup> tile_w: array<vec4<f32>, tile_n * quads>;

fn permutation_x(row: u32) -> u32 {
  return row & (quads - 1u);
}

fn permutation_w(row: u32) -> u32 {
  return (row >> 2u) & 3u;
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  let tiles = params.tiles_m * params.tiles_n;
  if (index >= tiles * params.splits) {
    return;
  }
  // Bands of `band` tile rows; within a band down the rows first, so that neighbours in time share weights and the band's x stays in cache.
  let split = index / tiles;
  let tile = index % tiles;
  let band = tile / (params.band * params.tiles_n);
  let in_band = tile % (params.band * params.tiles_n);
  let band_rows = min(params.band, params.tiles_m - band * params.band);
  let first_m = (band * params.band + in_band % band_rows) * tile_m;
  let first_n = (in_band / band_rows) * tile_n;
  let quad_end = min((split + 1u) * params.split_quads, params.weight_quads);

  let load_row = thread / quads;
  let load_quad = thread % quads;
//@for P $X_LOADS
  let x_base_${P} = row_of_x(min(first_m + load_row + ${P}u * load_step, params.rows - 1u));
  let x_slot_${P} = (load_row + ${P}u * load_step) * quads + (load_quad ^ permutation_x(load_row + ${P}u * load_step));
  var next_x_${P} = vec4<f32>();
//@endfor
//@for P $W_LOADS
  let w_base_${P} = min(first_n + load_row + ${P}u * load_step, params.cols - 1u) * params.weight_quads;
  let w_slot_${P} = (load_row + ${P}u * load_step) * quads + (load_quad ^ permutation_w(load_row + ${P}u * load_step));
  var next_w_${P} = WeightQuad();
//@endfor

  let lane = thread & 31u;
  let warp = thread >> 5u;
  let row_in_tile = (warp / warps_n) * warp_m + ((lane >> 1u) & 7u);
  let col_in_tile = (warp % warps_n) * warp_n + (((lane >> 4u) << 1u) | (lane & 1u)) * 4u;
  let base_x = row_in_tile * quads;
  let base_w = col_in_tile * quads;
  let permute_x = permutation_x(row_in_tile);
  let permute_w = permutation_w(col_in_tile);
//@for I $ROWS
//@for H $COL_QUADS
  var sum_${I}_${H} = vec4<f32>();
//@endfor
//@endfor

  var quad = split * params.split_quads + load_quad;
  var step = split * params.split_quads;
  if (quad < quad_end) {
//@for P $X_LOADS
    next_x_${P} = load_x(x_base_${P}, quad);
//@endfor
//@for P $W_LOADS
    next_w_${P} = weight[w_base_${P} + quad];
//@endfor
  }
  while (step < quad_end) {
//@for P $X_LOADS
    tile_x[x_slot_${P}] = next_x_${P};
//@endfor
//@for P $W_LOADS
    tile_w[w_slot_${P}] = widen(next_w_${P});
//@endfor
    workgroupBarrier();
    step += quads;
    quad += quads;
    if (quad < quad_end) {
//@for P $X_LOADS
      next_x_${P} = load_x(x_base_${P}, quad);
//@endfor
//@for P $W_LOADS
      next_w_${P} = weight[w_base_${P} + quad];
//@endfor
    } else {
//@for P $X_LOADS
      next_x_${P} = vec4<f32>();
//@endfor
//@for P $W_LOADS
      next_w_${P} = WeightQuad();
//@endfor
    }
    for (var q = 0u; q < quads; q++) {
      let from_x = base_x + (q ^ permute_x);
      let from_w = base_w + (q ^ permute_w);
//@for I $ROWS
      let a_${I} = tile_x[from_x + ${I}u * 8u * quads];
//@endfor
//@for H $COL_QUADS
//@for J 4
      let b_${H}_${J} = tile_w[from_w + (${H}u * 16u + ${J}u) * quads];
//@for I $ROWS
      sum_${I}_${H}[${J}] = fma(a_${I}.w, b_${H}_${J}.w, fma(a_${I}.z, b_${H}_${J}.z, fma(a_${I}.y, b_${H}_${J}.y, fma(a_${I}.x, b_${H}_${J}.x, sum_${I}_${H}[${J}]))));
//@endfor
//@endfor
//@endfor
    }
    workgroupBarrier();
  }

//@for I $ROWS
  {
    let m = first_m + row_in_tile + ${I}u * 8u;
    if (m < params.rows) {
//@for H $COL_QUADS
      store(m, first_n + col_in_tile + ${H}u * 16u, split, sum_${I}_${H});
//@endfor
    }
  }
//@endfor
}
