// One of the two products of expert_ffn for many rows: tiles of $ROUTES routes of one expert by 32 pairs of weight rows, listed by
// expert_ffn_sort. Each of 128 invocations makes $OWN_ROUTES routes x $OWN_PAIRS pairs. The next step's values are under way while one is multiplied.
// Sums run over the columns in order, whatever the tile: every build gives the same bits.
//@include expert_ffn/params.wgsl
//@include expert_ffn/weight.$DTYPE.wgsl
//@include expert_ffn/input.$INPUT.wgsl
//@include expert_ffn/output.$OUTPUT.wgsl

@group(0) @binding(2) var<storage, read> records: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> table: array<u32>;

const tile_routes: u32 = $ROUTES;
const tile_pairs: u32 = 32;
const threads: u32 = 128;
const step_quads: u32 = 8;               // of the columns
const row_slots: u32 = step_quads + 1u;  // against bank conflicts
const step_units: u32 = step_quads / unit_quads;
const own_routes: u32 = $OWN_ROUTES;
const pair_threads: u32 = tile_pairs / $OWN_PAIRS;

var<workgroup> tile_x: array<vec4<f32>, tile_routes * row_slots>;
var<workgroup> tile_w: array<vec4<f32>, 2u * tile_pairs * row_slots>;  // first rows of the pairs, then second rows

fn bias_at(base: u32, index: u32) -> f32 {
  return bitcast<f32>(records[base + index / 4u][index % 4u]);
}

fn load_weights(base: u32, unit: u32, units: u32) -> vec4<u32> {
  if (unit >= units) {
    return vec4<u32>();
  }
  return records[base + unit];
}

fn load_x(base: u32, quad: u32, quads: u32) -> vec4<f32> {
  if (quad >= quads) {
    return vec4<f32>();
  }
  return load_input(base, quad);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup.x + workgroup.y * grid.x;
  if (index >= params.workgroups) {
    return;
  }
  let tile = index / params.row_groups;
  if (tile >= table[0]) {
    return;
  }
  let entry = 4u + 4u * tile;
  let record = table[entry] * params.record_quads;
  let list = params.routes_at + table[entry + 1u];
  let routes = table[entry + 2u];
  let pairs_from = index % params.row_groups * tile_pairs;
  let units = weight_quads();
  let last_pair = pair_count() - 1u;

  // What this invocation brings in at each step: a quad of some routes, a unit of some weight rows.
  let x_quad = thread % step_quads;
  let w_unit = thread % step_units;
//@for J $X_LOADS
  let x_slot_${J} = thread / step_quads + ${J}u * (threads / step_quads);
  let x_base_${J} = input_row(table[list + min(x_slot_${J}, routes - 1u)]);
  var x_next_${J} = load_x(x_base_${J}, x_quad, units * unit_quads);
//@endfor
//@for J $W_LOADS
  let w_slot_${J} = thread / step_units + ${J}u * (threads / step_units);
  let w_pair_${J} = min(pairs_from + w_slot_${J} % tile_pairs, last_pair);
  let w_base_${J} = record + matrix_offset() + select(first_row(w_pair_${J}), second_row(w_pair_${J}), w_slot_${J} >= tile_pairs) * units;
  var w_next_${J} = load_weights(w_base_${J}, w_unit, units);
//@endfor

  let m_from = thread / pair_threads * own_routes;
  let n = thread % pair_threads;
//@for I $OWN_ROUTES
//@for J $OWN_PAIRS
  var sum_${I}_${J} = vec2<f32>();
//@endfor
//@endfor
  for (var unit = 0u; unit < units; unit += step_units) {
    workgroupBarrier();
//@for J $X_LOADS
    if (x_slot_${J} < tile_routes) {
      tile_x[x_slot_${J} * row_slots + x_quad] = x_next_${J};
    }
//@endfor
//@for J $W_LOADS
    for (var part = 0u; part < unit_quads; part++) {
      tile_w[w_slot_${J} * row_slots + w_unit * unit_quads + part] = widen(w_next_${J}, part);
    }
//@endfor
    workgroupBarrier();
//@for J $X_LOADS
    x_next_${J} = load_x(x_base_${J}, (unit + step_units) * unit_quads + x_quad, units * unit_quads);
//@endfor
//@for J $W_LOADS
    w_next_${J} = load_weights(w_base_${J}, unit + step_units + w_unit, units);
//@endfor
    for (var k = 0u; k < params.tile_quads; k++) {
//@for J $OWN_PAIRS
      let b_${J}_0 = tile_w[(n + ${J}u * pair_threads) * row_slots + k];
      let b_${J}_1 = tile_w[(tile_pairs + n + ${J}u * pair_threads) * row_slots + k];
//@endfor
//@for I $OWN_ROUTES
      let a_${I} = tile_x[(m_from + ${I}u) * row_slots + k];
//@for J $OWN_PAIRS
      sum_${I}_${J}.x = fma(a_${I}.w, b_${J}_0.w, fma(a_${I}.z, b_${J}_0.z, fma(a_${I}.y, b_${J}_0.y, fma(a_${I}.x, b_${J}_0.x, sum_${I}_${J}.x))));
      sum_${I}_${J}.y = fma(a_${I}.w, b_${J}_1.w, fma(a_${I}.z, b_${J}_1.z, fma(a_${I}.y, b_${J}_1.y, fma(a_${I}.x, b_${J}_1.x, sum_${I}_${J}.y))));
//@endfor
//@endfor
    }
  }
//@for I $OWN_ROUTES
  if (m_from + ${I}u < routes) {
    let route = table[list + m_from + ${I}u];
//@for J $OWN_PAIRS
    store_pair(route, record, pairs_from + n + ${J}u * pair_threads, sum_${I}_${J});
//@endfor
  }
//@endfor
}
