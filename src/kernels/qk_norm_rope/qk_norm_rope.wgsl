// RMSNorm (of w or 1 + w, or none) and rotate-half RoPE of the heads of a row; values are copied. 32 lanes share one head and sum the squares
// of what is normed together (the head, or all heads of its kind) by a fixed tree; eight heads a workgroup, in the order queries, keys, values.
// Builds differ in what they write:
//   QUERIES=yes  heads of the q_gate projection (a gate may lie behind every query)
//   KEYS=two     keys | values, two results
//   KEYS=one     the same, both results parts of one buffer
// With queries and keys, both lie in one input.
struct Params {
  head_dim: u32,     // widths, offsets and strides in UNITs
  half: u32,         // rotary_dim / 2
  query_heads: u32,  // 0: none are written
  kv_heads: u32,     // 0: none are written
  rows: u32,
  q_offset: u32,
  q_stride: u32,
  q_pitch: u32,  // from query to query in the input
  kv_offset: u32,
  kv_stride: u32,
  cosine_offset: u32,
  cosine_stride: u32,
  sine_offset: u32,
  sine_stride: u32,
  q_out_offset: u32,
  q_out_stride: u32,
  k_out_offset: u32,
  k_out_stride: u32,
  v_out_offset: u32,
  v_out_stride: u32,
  workgroups: u32,
  epsilon: f32,
  weight_shift: f32,  // added to the weight
  norm: u32,          // as below
}

const norm_none: u32 = 0;  // the weights are not read
const norm_per_head: u32 = 1;
const norm_whole_row: u32 = 2;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<$UNIT>;
@group(0) @binding(2) var<storage, read> cosine: array<$UNIT>;
@group(0) @binding(3) var<storage, read> sine: array<$UNIT>;
@group(0) @binding(4) var<storage, read> q_weight: array<$UNIT>;             //@if QUERIES=yes
@group(0) @binding(5) var<storage, read_write> q_out: array<$UNIT>;          //@if QUERIES=yes
@group(0) @binding($KEYS_AT) var<storage, read> k_weight: array<$UNIT>;      //@if KEYS!=no
@group(0) @binding($K_OUT_AT) var<storage, read_write> k_out: array<$UNIT>;  //@if KEYS!=no
@group(0) @binding($V_OUT_AT) var<storage, read_write> v_out: array<$UNIT>;  //@if KEYS=two

const kLanes: u32 = 32;
const kHeads: u32 = 8;  // heads a workgroup
const kWidth: u32 = $WIDTH;

var<workgroup> sums: array<f32, 256>;

// Where a head lies, and what is normed with it.
struct Head {
  is_query: bool,
  x_at: u32,
  weight_at: u32,
  norm_from: u32,
  norm_count: u32,
}

fn weight_of(head: Head, i: u32) -> $UNIT {
  if (head.is_query) {                   //@if QUERIES=yes
    return q_weight[head.weight_at + i]; //@if QUERIES=yes
  }                                      //@if QUERIES=yes
  return k_weight[head.weight_at + i];   //@if KEYS!=no
  return $UNIT(0.0);                     //@if KEYS=no
}

fn normed(head: Head, i: u32, factor: f32) -> $UNIT {
  if (params.norm == norm_none) {
    return x[head.x_at + i];
  }
  return x[head.x_at + i] * factor * (weight_of(head, i) + $UNIT(params.weight_shift));
}

fn head_of(row: u32, index: u32) -> Head {
  let is_query = index < params.query_heads;
  let own = select(index - params.query_heads, index, is_query);
  let row_at = select(params.kv_offset + row * params.kv_stride, params.q_offset + row * params.q_stride, is_query);
  let at = row_at + own * select(params.head_dim, params.q_pitch, is_query);
  if (params.norm != norm_whole_row) {
    return Head(is_query, at, 0u, at, params.head_dim);
  }
  return Head(is_query, at, own * params.head_dim, row_at, params.head_dim * select(params.kv_heads, params.query_heads, is_query));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let workgroup = group.x + group.y * groups.x;
  if (workgroup >= params.workgroups) {
    return;
  }
  let lane = thread % kLanes;
  let index = workgroup * kHeads + thread / kLanes;
  let heads = params.query_heads + 2u * params.kv_heads;
  let row = index / heads;
  let own = index % heads;
  let inside = row < params.rows;
  let is_value = own >= params.query_heads + params.kv_heads;
  let head = head_of(row, own);

  var sum = $UNIT(0.0);
  if (inside && !is_value && params.norm != norm_none) {
    // Four loads are on their way at once.
    for (var i = lane; i < head.norm_count; i += 4u * kLanes) {
//@for L 4
      let value_${L} = x[head.norm_from + min(i + ${L}u * kLanes, head.norm_count - 1u)];
//@endfor
//@for L 4
      if (i + ${L}u * kLanes < head.norm_count) {
        sum = fma(value_${L}, value_${L}, sum);
      }
//@endfor
    }
  }
  sums[thread] = dot(sum, vec4<f32>(1.0));  //@if WIDTH=4
  sums[thread] = sum;                       //@if WIDTH=1
  for (var step = kLanes / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (lane < step) {
      sums[thread] += sums[thread + step];
    }
  }
  workgroupBarrier();
  if (!inside) {
    return;
  }
  if (is_value) {
    let value_at = params.v_out_offset + row * params.v_out_stride + (own - params.query_heads - params.kv_heads) * params.head_dim;  //@if KEYS!=no
    for (var i = lane; i < params.head_dim; i += kLanes) {  //@if KEYS!=no
      v_out[value_at + i] = x[head.x_at + i];  //@if KEYS=two
      k_out[value_at + i] = x[head.x_at + i];  //@if KEYS=one
    }                                          //@if KEYS!=no
    return;
  }
  let factor = 1.0 / sqrt(sums[thread - lane] / f32(head.norm_count * kWidth) + params.epsilon);
  let q_at = params.q_out_offset + row * params.q_out_stride + own * params.head_dim;                           //@if QUERIES=yes
  let k_at = params.k_out_offset + row * params.k_out_stride + (own - params.query_heads) * params.head_dim;    //@if KEYS!=no
  let cosine_at = params.cosine_offset + row * params.cosine_stride;
  let sine_at = params.sine_offset + row * params.sine_stride;
  for (var i = lane; i < params.head_dim; i += kLanes) {
    var value = normed(head, i, factor);
    if (i < params.half) {
      value = value * cosine[cosine_at + i] - normed(head, i + params.half, factor) * sine[sine_at + i];
    } else if (i < 2u * params.half) {
      let pair = i - params.half;
      value = value * cosine[cosine_at + pair] + normed(head, pair, factor) * sine[sine_at + pair];
    }
    if (head.is_query) {      //@if QUERIES=yes
      q_out[q_at + i] = value;  //@if QUERIES=yes
      continue;               //@if QUERIES=yes
    }                         //@if QUERIES=yes
    k_out[k_at + i] = value;  //@if KEYS!=no
  }
}
