// scores[o] = dot(keys[o], queries[question_of_option[o]]) * scale / temperature. One workgroup an option, fixed summation tree.
struct Params {
  row_units: u32,  // width, offsets and strides in UNITs
  queries_offset: u32,
  queries_stride: u32,
  keys_offset: u32,
  keys_stride: u32,
  questions: u32,
  first_option: u32,
  options: u32,
  scale: f32,
  temperature: f32,
  padding0: u32,
  padding1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<$UNIT>;
@group(0) @binding(2) var<storage, read> keys: array<$UNIT>;
@group(0) @binding(3) var<storage, read> question_of_option: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;

var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let option = group.x + group.y * groups.x;
  if (option >= params.options) {
    return;
  }
  let question = min(question_of_option[params.first_option + option], params.questions - 1u);
  let query_at = params.queries_offset + question * params.queries_stride;
  let key_at = params.keys_offset + option * params.keys_stride;
  var sum = $UNIT(0.0);
  for (var i = thread; i < params.row_units; i += 64u) {
    sum = fma(keys[key_at + i], queries[query_at + i], sum);
  }
  sums[thread] = dot(sum, vec4<f32>(1.0));  //@if WIDTH=4
  sums[thread] = sum;                       //@if WIDTH=1
  for (var step = 32u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (thread < step) {
      sums[thread] += sums[thread + step];
    }
  }
  if (thread == 0u) {
    scores[params.first_option + option] = sums[0] * params.scale / params.temperature;
  }
}
