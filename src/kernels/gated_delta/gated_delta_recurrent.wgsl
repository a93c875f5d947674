// Gated delta rule token by token, for short sequences: one workgroup per (sequence, value head, 8 value columns), the state columns in
// workgroup memory. Both dot products use the state before the token, so one sweep serves them:
//   p = alpha S^T k;  u = beta (v - p);  o = alpha S^T q + (q . k) u;  S <- alpha S + k u^T
//@include gated_delta/params.wgsl

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> qkv: array<$ELEMENT>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> a: array<f32>;
@group(0) @binding(4) var<storage, read> gate_constants: array<f32>;  // a_log
@group(0) @binding(5) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(6) var<storage, read> state_in: array<vec4<f32>>;  // [value_heads, key_dim, value_dim]
@group(0) @binding(7) var<storage, read_write> output: array<f32>;
@group(0) @binding(8) var<storage, read_write> state_out: array<vec4<f32>>;  //@if STATE=yes
@group(0) @binding(8) var<storage, read> spans: array<vec2<u32>>;   //@if STATE=no

//@include gated_delta/gates.wgsl
//@include gated_delta/load_qkv.wgsl

const kThreads = 64u;
const kColumns = 2u;   // groups of four value columns
const kKeyGroups = 64u;  // largest key_dim / 4

var<workgroup> state: array<vec4<f32>, 512>;  // [key][column group]; a thread only touches its own elements
var<workgroup> queries: array<vec4<f32>, kKeyGroups>;
var<workgroup> keys: array<vec4<f32>, kKeyGroups>;
// Partial sums: S^T k, S^T q, and (q . q, k . k, q . k, 0).
var<workgroup> reads: array<vec4<f32>, kThreads>;
var<workgroup> outs: array<vec4<f32>, kThreads>;
var<workgroup> norms: array<vec4<f32>, kThreads>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = group.x + group.y * groups.x;
  if (index >= params.workgroups) { return; }
  let span = vec2<u32>(0u, params.token_count);  // one sequence: all rows  //@if STATE=yes
  let span = spans[index / (params.column_blocks * params.value_heads)];  //@if STATE=no
  if (span.y < params.min_length || span.y > params.max_length) { return; }
  let head = (index / params.column_blocks) % params.value_heads;
  let key_head = head / params.heads_per_key;
  let key_width = params.key_width;
  let key_dim = key_width * 4u;
  let part = thread / kColumns;
  let column = (index % params.column_blocks) * kColumns + thread % kColumns;
  let inside = column < params.value_width;
  let value_column = 2u * params.key_heads * key_width + head * params.value_width + column;

  for (var key = part; key < key_dim; key += kThreads / kColumns) {
    var value = vec4<f32>(0.0);
    if (inside) { value = state_in[(head * key_dim + key) * params.value_width + column]; }
    state[key * kColumns + thread % kColumns] = value;
  }
  for (var token = 0u; token < span.y; token++) {
    let row = span.x + token;
    var q4 = vec4<f32>(0.0);
    var k4 = vec4<f32>(0.0);
    if (thread < key_width) {
      q4 = load_qkv(row, key_head * key_width + thread);
      k4 = load_qkv(row, (params.key_heads + key_head) * key_width + thread);
    }
    workgroupBarrier();
    queries[thread] = q4;
    keys[thread] = k4;
    norms[thread] = vec4<f32>(dot(q4, q4), dot(k4, k4), dot(q4, k4), 0.0);
    workgroupBarrier();
    var read = vec4<f32>(0.0);
    var out = vec4<f32>(0.0);
    for (var key = part; key < key_dim; key += kThreads / kColumns) {
      let s = state[key * kColumns + thread % kColumns];
      read += keys[key / 4u][key % 4u] * s;
      out += queries[key / 4u][key % 4u] * s;
    }
    reads[thread] = read;
    outs[thread] = out;
    for (var step = kThreads / 2u; step >= kColumns; step /= 2u) {
      workgroupBarrier();
      if (thread < step) {
        reads[thread] += reads[thread + step];
        outs[thread] += outs[thread + step];
        norms[thread] += norms[thread + step];
      }
    }
    workgroupBarrier();
    let norm = norms[0] + norms[1];
    let query_scale = inverseSqrt(norm.x + 1e-6) * params.query_scale;
    let key_scale = inverseSqrt(norm.y + 1e-6);
    let alpha = exp2_nonpositive(log2_decay(gate_constants[head], a[params.a_offset + row * params.a_stride + head] + dt_bias[head]));
    let beta = beta_of(b[params.b_offset + row * params.b_stride + head]);
    var value = vec4<f32>(0.0);
    if (inside) { value = load_qkv(row, value_column); }
    let update = beta * (value - alpha * key_scale * reads[thread % kColumns]);
    if (part == 0u && inside) {
      let result = query_scale * (alpha * outs[thread] + key_scale * norm.z * update);
      let at = params.out_offset + row * params.out_stride + (head * params.value_width + column) * 4u;
      output[at] = result.x;
      output[at + 1u] = result.y;
      output[at + 2u] = result.z;
      output[at + 3u] = result.w;
    }
    for (var key = part; key < key_dim; key += kThreads / kColumns) {
      let at = key * kColumns + thread % kColumns;
      state[at] = alpha * state[at] + key_scale * keys[key / 4u][key % 4u] * update;
    }
  }
  if (!inside) { return; }  //@if STATE=yes
  for (var key = part; key < key_dim; key += kThreads / kColumns) {  //@if STATE=yes
    state_out[(head * key_dim + key) * params.value_width + column] = state[key * kColumns + thread % kColumns];  //@if STATE=yes
  }  //@if STATE=yes
}
