// Softmax of each segment, the maximum subtracted. One workgroup a segment; each thread takes every 64th value.
struct Params {
  segments: u32,
  count: u32,
  padding0: u32,
  padding1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let segment = group.x + group.y * groups.x;
  if (segment >= params.segments) {
    return;
  }
  let first = starts[segment];
  let last = min(starts[segment + 1u], params.count);
  if (first >= last) {
    return;
  }
  var largest = values[first];
  for (var i = first + thread; i < last; i += 64u) {
    largest = max(largest, values[i]);
  }
  partial[thread] = largest;
  for (var step = 32u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (thread < step) {
      partial[thread] = max(partial[thread], partial[thread + step]);
    }
  }
  workgroupBarrier();
  largest = partial[0];
  workgroupBarrier();

  var sum = 0.0;
  for (var i = first + thread; i < last; i += 64u) {
    let value = exp(values[i] - largest);
    out[i] = value;
    sum += value;
  }
  partial[thread] = sum;
  for (var step = 32u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (thread < step) {
      partial[thread] += partial[thread + step];
    }
  }
  workgroupBarrier();
  let total = partial[0];
  for (var i = first + thread; i < last; i += 64u) {
    out[i] = out[i] / total;
  }
}
