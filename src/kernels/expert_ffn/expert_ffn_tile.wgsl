// One of the two products of expert_ffn for many rows: tiles of 32 routes of one expert by 32 pairs of weight rows, listed by expert_ffn_sort.
// 128 invocations make 4 routes x 2 pairs each. Sums run over the columns in order.
//@include expert_ffn/params.wgsl
//@include expert_ffn/weight.$DTYPE.wgsl
//@include expert_ffn/input.$INPUT.wgsl
//@include expert_ffn/output.$OUTPUT.wgsl

@group(0) @binding(2) var<storage, read> records: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> table: array<u32>;

const tile_routes: u32 = 32;
const tile_pairs: u32 = 32;
const step_quads: u32 = 8;               // of the columns
const row_slots: u32 = step_quads + 1u;  // against bank conflicts
const step_units: u32 = step_quads / unit_quads;

var<workgroup> tile_x: array<vec4<f32>, tile_routes * row_slots>;
var<workgroup> tile_w: array<vec4<f32>, 2u * tile_pairs * row_slots>;  // first rows of the pairs, then second rows

fn bias_at(base: u32, index: u32) -> f32 {
  return bitcast<f32>(records[base + index / 4u][index % 4u]);
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

  // What this invocation brings in at each step: quads of two routes, and units of weight rows.
  let x_quad = thread % step_quads;
//@for J 2
  let x_slot_${J} = thread / step_quads + ${J}u * 16u;
  let x_base_${J} = input_row(table[list + min(x_slot_${J}, routes - 1u)]);
//@endfor
  let w_unit = thread % step_units;
  let w_slot = thread / step_units;
  let w_slots = 128u / step_units;

  let m_from = thread / 16u * 4u;
  let n = thread % 16u;
//@for I 4
  var sum_${I} = vec4<f32>();
//@endfor
  for (var unit = 0u; unit < units; unit += step_units) {
    let quad = unit * unit_quads;
    workgroupBarrier();
//@for J 2
    var value_${J} = vec4<f32>();
    if (unit + x_quad / unit_quads < units) {
      value_${J} = load_input(x_base_${J}, quad + x_quad);
    }
    tile_x[x_slot_${J} * row_slots + x_quad] = value_${J};
//@endfor
    for (var slot = w_slot; slot < 2u * tile_pairs; slot += w_slots) {
      let pair = min(pairs_from + slot % tile_pairs, last_pair);
      let row = select(first_row(pair), second_row(pair), slot >= tile_pairs);
      var loaded = vec4<u32>();
      if (unit + w_unit < units) {
        loaded = records[record + matrix_offset() + row * units + unit + w_unit];
      }
      for (var part = 0u; part < unit_quads; part++) {
        tile_w[slot * row_slots + w_unit * unit_quads + part] = widen(loaded, part);
      }
    }
    workgroupBarrier();
    for (var k = 0u; k < step_quads; k++) {
//@for J 4
      let b_${J} = tile_w[(n + ${J}u * 16u) * row_slots + k];
//@endfor
//@for I 4
      let a_${I} = tile_x[(m_from + ${I}u) * row_slots + k];
//@for J 4
      sum_${I}[${J}] = fma(a_${I}.w, b_${J}.w, fma(a_${I}.z, b_${J}.z, fma(a_${I}.y, b_${J}.y, fma(a_${I}.x, b_${J}.x, sum_${I}[${J}]))));
//@endfor
//@endfor
    }
  }
//@for I 4
  if (m_from + ${I}u < routes) {
    let route = table[list + m_from + ${I}u];
    store_pair(route, record, pairs_from + n, vec2<f32>(sum_${I}.x, sum_${I}.z));
    store_pair(route, record, pairs_from + n + 16u, vec2<f32>(sum_${I}.y, sum_${I}.w));
  }
//@endfor
}
