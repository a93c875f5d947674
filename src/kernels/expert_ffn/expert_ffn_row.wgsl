// One of the two products of expert_ffn for few rows: bound by reading the weights. A workgroup makes some pairs of weight rows of one
// route, each by `width` invocations that share the columns; sums are added in a fixed order.
enable subgroups;  //@if REDUCE=subgroup
//@include expert_ffn/params.wgsl
//@include expert_ffn/weight.$DTYPE.wgsl
//@include expert_ffn/input.$INPUT.wgsl
//@include expert_ffn/output.$OUTPUT.wgsl
//@include expert_ffn/reduce.$REDUCE.wgsl

const steps: u32 = $STEPS;

@group(0) @binding(2) var<storage, read> records: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> slots: array<u32>;

fn bias_at(base: u32, index: u32) -> f32 {
  return bitcast<f32>(records[base + index / 4u][index % 4u]);
}

@compute @workgroup_size($THREADS)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(subgroup_size) width: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_id) member: u32,  //@if REDUCE=subgroup
        @builtin(local_invocation_index) thread: u32) {
  let width = 16u;            //@if REDUCE=workgroup
  let lane = thread % 16u;    //@if REDUCE=workgroup
  let member = thread / 16u;  //@if REDUCE=workgroup
  let index = workgroup.x + workgroup.y * grid.x;
  if (index >= params.workgroups) {
    return;
  }
  let route = index / params.row_groups;
  let slot = slots[params.route_first + route] - params.slot_first;
  if (slot >= params.slot_count) {
    return;
  }
  let pair = index % params.row_groups * params.group_rows + member;
  let at = min(pair, pair_count() - 1u);
  let record = slot * params.record_quads;
  let units = weight_quads();
  let first = record + matrix_offset() + first_row(at) * units;
  let second = record + matrix_offset() + second_row(at) * units;
  let input = input_row(route);
  var sum_0 = vec4<f32>();
  var sum_1 = vec4<f32>();
  // Loads of all steps are under way at once. Behind the row, weights and input are zero.
  for (var unit = lane; unit < units; unit += steps * width) {
//@for S $STEPS
    var w_0_${S} = vec4<u32>();
    var w_1_${S} = vec4<u32>();
    if (unit + ${S}u * width < units) {
      w_0_${S} = records[first + unit + ${S}u * width];
      w_1_${S} = records[second + unit + ${S}u * width];
    }
//@endfor
//@for S $STEPS
    for (var quad = 0u; quad < unit_quads; quad++) {
      let value = load_input(input, (unit + ${S}u * width) * unit_quads + quad);
      sum_0 = fma(widen(w_0_${S}, quad), value, sum_0);
      sum_1 = fma(widen(w_1_${S}, quad), value, sum_1);
    }
//@endfor
  }
  let parts_of_lane = vec2<f32>((sum_0.x + sum_0.y) + (sum_0.z + sum_0.w), (sum_1.x + sum_1.y) + (sum_1.z + sum_1.w));
  let sums = add_up(parts_of_lane, thread);
  if (lane == 0u) {
    store_pair(route, record, pair, sums);
  }
}
