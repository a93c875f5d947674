// Chunk-local half of the chunked gated delta rule, parallel over (chunk, key head). For each value head of the key head:
//   L_ij = beta_i (k_i . k_j) 2^(g_i - g_j), j < i;   T = (I + L)^-1;   U = T (beta v);   W = T (beta k 2^g);
//   A_ij = (q_i . k_j) 2^(g_i - g_j), j <= i, with g the running log2 decay inside the chunk.
// All exponents formed are differences <= 0. Rows past the end of the sequence have beta = 0 and decay 1 and give zeros.
//@include gated_delta/params.wgsl

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> qkv: array<$ELEMENT>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> a: array<f32>;
@group(0) @binding(4) var<storage, read> a_log: array<f32>;
@group(0) @binding(5) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(6) var<storage, read> spans: array<vec2<u32>>;  // start, length
@group(0) @binding(7) var<storage, read_write> scratch: array<vec4<f32>>;

//@include gated_delta/gates.wgsl
//@include gated_delta/load_qkv.wgsl

const kChunk = 64u;
const kTriangle = 10u;  // 16x16 blocks on and below the diagonal
const kKeySlice = 256u;  // the key half of the staged slices

// First: slices of 16 columns of q and k, [column][16 groups of 4 rows], two times 256. Then: L and its inverse, block (I, J) at
// I (I + 1) / 2 + J, [column][4 groups of 4 rows].
var<workgroup> memory: array<vec4<f32>, 640>;
// A log2 decay as a whole part (exact sums) and a fraction in [-0.5, 0.5]: differences stay accurate after very small decays.
var<workgroup> steps: array<vec2<f32>, 64>;
var<workgroup> sums: array<vec2<f32>, 64>;
var<workgroup> betas: array<f32, 64>;
var<workgroup> key_scales: array<f32, 64>;
var<workgroup> query_scales: array<f32, 64>;
var<workgroup> key_weights: array<f32, 64>;   // beta * key scale * 2^g
var<workgroup> out_scales: array<f32, 64>;    // query scale * 2^g
var<workgroup> state_weights: array<f32, 64>; // key scale * 2^(g_end - g)

struct Chunk {
  row: u32,   // first row in the matrices
  rows: u32,  // 1..64; 0: nothing to do
}

fn slot_of_sequence(sequence: u32, first_row: u32) -> u32 { return (spans[sequence].x - first_row) / kChunk + sequence - params.first_sequence; }

// Slots of a sequence start at floor(rows before it / 64) + sequences before it, which leaves room for every ragged end.
fn find_chunk(slot: u32) -> Chunk {
  let first_row = spans[params.first_sequence].x;
  var low = params.first_sequence;
  var high = params.first_sequence + params.sequence_count;
  while (high - low > 1u) {
    let middle = (low + high) / 2u;
    if (slot_of_sequence(middle, first_row) <= slot) { low = middle; } else { high = middle; }
  }
  let span = spans[low];
  if (span.y < params.min_length || span.y > params.max_length || span.y <= params.token_begin) { return Chunk(0u, 0u); }
  let length = min(span.y - params.token_begin, params.token_count);
  let token = (slot - slot_of_sequence(low, first_row)) * kChunk;
  if (token >= length) { return Chunk(0u, 0u); }
  return Chunk(span.x + params.token_begin + token, min(kChunk, length - token));
}

// Position of row group `group` of column `column` in a staged slice; the xor spreads transposed stores over the banks.
fn slice_index(column: u32, group: u32) -> u32 { return column * 16u + (group ^ ((column >> 1u) & 6u)); }

// out[:, column] rows 4 * rows .. of left * right, 16x16 blocks.
fn block_product(left: u32, right: u32, column: u32, rows: u32) -> vec4<f32> {
  var sum = vec4<f32>(0.0);
  for (var group = 0u; group < 4u; group++) {
    let factor = memory[right * 64u + column * 4u + group];
    let at = left * 64u + group * 16u + rows;
    sum += memory[at] * factor.x;
    sum += memory[at + 4u] * factor.y;
    sum += memory[at + 8u] * factor.z;
    sum += memory[at + 12u] * factor.w;
  }
  return sum;
}

// Inverse of I + L for the four diagonal blocks: thread (block, column) solves its column by forward substitution.
fn invert_diagonal(thread: u32) {
  let block = thread / 16u;
  let column = thread % 16u;
  let base = (block * (block + 3u) / 2u) * 64u;
  let one = vec4<u32>(column);
  var x0 = select(vec4<f32>(0.0), vec4<f32>(1.0), one == vec4<u32>(0u, 1u, 2u, 3u));
  var x1 = select(vec4<f32>(0.0), vec4<f32>(1.0), one == vec4<u32>(4u, 5u, 6u, 7u));
  var x2 = select(vec4<f32>(0.0), vec4<f32>(1.0), one == vec4<u32>(8u, 9u, 10u, 11u));
  var x3 = select(vec4<f32>(0.0), vec4<f32>(1.0), one == vec4<u32>(12u, 13u, 14u, 15u));
  if (thread < kChunk) {
    let m0 = x0.x;
    x0 -= memory[base + 0u] * m0;
    x1 -= memory[base + 1u] * m0;
    x2 -= memory[base + 2u] * m0;
    x3 -= memory[base + 3u] * m0;
    let m1 = x0.y;
    x0 -= memory[base + 4u] * m1;
    x1 -= memory[base + 5u] * m1;
    x2 -= memory[base + 6u] * m1;
    x3 -= memory[base + 7u] * m1;
    let m2 = x0.z;
    x0 -= memory[base + 8u] * m2;
    x1 -= memory[base + 9u] * m2;
    x2 -= memory[base + 10u] * m2;
    x3 -= memory[base + 11u] * m2;
    let m3 = x0.w;
    x1 -= memory[base + 13u] * m3;
    x2 -= memory[base + 14u] * m3;
    x3 -= memory[base + 15u] * m3;
    let m4 = x1.x;
    x1 -= memory[base + 17u] * m4;
    x2 -= memory[base + 18u] * m4;
    x3 -= memory[base + 19u] * m4;
    let m5 = x1.y;
    x1 -= memory[base + 21u] * m5;
    x2 -= memory[base + 22u] * m5;
    x3 -= memory[base + 23u] * m5;
    let m6 = x1.z;
    x1 -= memory[base + 25u] * m6;
    x2 -= memory[base + 26u] * m6;
    x3 -= memory[base + 27u] * m6;
    let m7 = x1.w;
    x2 -= memory[base + 30u] * m7;
    x3 -= memory[base + 31u] * m7;
    let m8 = x2.x;
    x2 -= memory[base + 34u] * m8;
    x3 -= memory[base + 35u] * m8;
    let m9 = x2.y;
    x2 -= memory[base + 38u] * m9;
    x3 -= memory[base + 39u] * m9;
    let m10 = x2.z;
    x2 -= memory[base + 42u] * m10;
    x3 -= memory[base + 43u] * m10;
    let m11 = x2.w;
    x3 -= memory[base + 47u] * m11;
    let m12 = x3.x;
    x3 -= memory[base + 51u] * m12;
    let m13 = x3.y;
    x3 -= memory[base + 55u] * m13;
    let m14 = x3.z;
    x3 -= memory[base + 59u] * m14;
  }
  workgroupBarrier();
  if (thread < kChunk) {
    memory[base + column * 4u] = x0;
    memory[base + column * 4u + 1u] = x1;
    memory[base + column * 4u + 2u] = x2;
    memory[base + column * 4u + 3u] = x3;
  }
  workgroupBarrier();
}

// One product of blocks: the sum over i of block left + i times block right + right_step * i, for block `to`.
struct Merge {
  to: u32,
  left: u32,
  right: u32,
  right_step: u32,
  terms: u32,  // 0: this thread rests
}

// [[A, 0], [B, D]]^-1 = [[A^-1, 0], [-D^-1 B A^-1, D^-1]]: phases 0 and 1 go from 16 to 32 rows with 64 threads for each of the blocks (1, 0) and
// (3, 2); phases 2 and 3 from 32 to 64 with 64 threads for each of (2, 0), (2, 1), (3, 0), (3, 1). Even phases form B A^-1 in the place of B.
fn merge_of(phase: u32, quarter: u32) -> Merge {
  let second = phase % 2u == 1u;
  if (phase < 2u) {
    let first_pair = quarter == 0u;
    let to = select(8u, 1u, first_pair);
    let terms = select(0u, 1u, quarter < 2u);
    if (second) { return Merge(to, select(9u, 2u, first_pair), to, 0u, terms); }
    return Merge(to, to, select(5u, 0u, first_pair), 0u, terms);
  }
  let half = quarter % 2u;
  let low = quarter >= 2u;
  let to = select(3u, 6u, low) + half;
  if (second) { return Merge(to, select(5u, 8u, low), 3u + half, 3u, select(1u, 2u, low)); }
  return Merge(to, to, 2u * half, 1u, 2u - half);
}

fn merge_blocks(thread: u32, phases: u32) {
  let column = (thread / 4u) % 16u;
  let rows = thread % 4u;
  for (var phase = 0u; phase < phases; phase++) {
    let merge = merge_of(phase, thread / 64u);
    var value = vec4<f32>(0.0);
    for (var i = 0u; i < merge.terms; i++) { value += block_product(merge.left + i, merge.right + merge.right_step * i, column, rows); }
    workgroupBarrier();
    if (merge.terms > 0u) { memory[merge.to * 64u + column * 4u + rows] = select(value, -value, phase % 2u == 1u); }
    workgroupBarrier();
  }
}

// Eight rows of T times four columns of a weighted source.
var<private> acc0: vec4<f32>;
var<private> acc1: vec4<f32>;
var<private> acc2: vec4<f32>;
var<private> acc3: vec4<f32>;
var<private> acc4: vec4<f32>;
var<private> acc5: vec4<f32>;
var<private> acc6: vec4<f32>;
var<private> acc7: vec4<f32>;

fn accumulate(octet: u32, token: u32, source: vec4<f32>) {
  let row_block = octet / 2u;
  let at = (row_block * (row_block + 1u) / 2u + token / 16u) * 64u + (token % 16u) * 4u + (octet % 2u) * 2u;
  let upper = memory[at];
  let lower = memory[at + 1u];
  acc0 += upper.x * source;
  acc1 += upper.y * source;
  acc2 += upper.z * source;
  acc3 += upper.w * source;
  acc4 += lower.x * source;
  acc5 += lower.y * source;
  acc6 += lower.z * source;
  acc7 += lower.w * source;
}

fn load_inside(chunk: Chunk, token: u32, column_group: u32) -> vec4<f32> {
  if (token < chunk.rows) { return load_qkv(chunk.row + token, column_group); }
  return vec4<f32>(0.0);
}

fn source_weight(token: u32, is_key: bool) -> f32 {
  if (is_key) { return key_weights[token]; }
  return betas[token];
}

fn multiply_inverse(chunk: Chunk, octet: u32, column_group: u32, is_key: bool) {
  acc0 = vec4<f32>(0.0);
  acc1 = vec4<f32>(0.0);
  acc2 = vec4<f32>(0.0);
  acc3 = vec4<f32>(0.0);
  acc4 = vec4<f32>(0.0);
  acc5 = vec4<f32>(0.0);
  acc6 = vec4<f32>(0.0);
  acc7 = vec4<f32>(0.0);
  if (octet * 8u >= chunk.rows) { return; }
  let limit = min(octet * 8u + 8u, chunk.rows);
  for (var token = 0u; token < limit; token += 4u) {
    let s0 = load_inside(chunk, token, column_group);
    let s1 = load_inside(chunk, token + 1u, column_group);
    let s2 = load_inside(chunk, token + 2u, column_group);
    let s3 = load_inside(chunk, token + 3u, column_group);
    accumulate(octet, token, s0 * source_weight(token, is_key));
    accumulate(octet, token + 1u, s1 * source_weight(token + 1u, is_key));
    accumulate(octet, token + 2u, s2 * source_weight(token + 2u, is_key));
    accumulate(octet, token + 3u, s3 * source_weight(token + 3u, is_key));
  }
}

// Gates of one value head: betas, running decays and the factors derived from them. Threads 0-63, one token each.
fn prepare_gates(thread: u32, chunk: Chunk, head: u32, gate_at: u32) {
  if (thread < kChunk) {
    var beta = 0.0;
    var step = vec2<f32>(0.0);
    if (thread < chunk.rows) {
      let row = chunk.row + thread;
      beta = beta_of(b[params.b_offset + row * params.b_stride + head]);
      let decay = log2_decay(a_log[head], a[params.a_offset + row * params.a_stride + head] + dt_bias[head]);
      let whole = round(decay);
      step = vec2<f32>(whole, decay - whole);
    }
    betas[thread] = beta;
    steps[thread] = step;
  }
  workgroupBarrier();
  if (thread < kChunk) {
    var sum = vec2<f32>(0.0);
    var own = vec2<f32>(0.0);
    for (var token = 0u; token < kChunk; token++) {
      sum += steps[token];
      if (token == thread) { own = sum; }
    }
    sums[thread] = own;
    let decay = exp2_nonpositive(own.x + own.y);
    key_weights[thread] = betas[thread] * key_scales[thread] * decay;
    out_scales[thread] = query_scales[thread] * decay;
    state_weights[thread] = 0.0;
    if (thread < chunk.rows) { state_weights[thread] = key_scales[thread] * exp2_nonpositive((sum.x - own.x) + (sum.y - own.y)); }
    if (thread == 0u) { scratch[gate_at + 32u] = vec4<f32>(exp2_nonpositive(sum.x + sum.y), 0.0, 0.0, 0.0); }
  }
  workgroupBarrier();
  if (thread < 16u) {
    let at = thread * 4u;
    scratch[gate_at + thread] = vec4<f32>(out_scales[at], out_scales[at + 1u], out_scales[at + 2u], out_scales[at + 3u]);
    scratch[gate_at + 16u + thread] =
        vec4<f32>(state_weights[at], state_weights[at + 1u], state_weights[at + 2u], state_weights[at + 3u]);
  }
}

// Column `column` of L and A for rows 4 * row_group ..., from the raw products.
fn store_column(row_group: u32, column: u32, block_at: u32, a_matrix_at: u32, key_products: vec4<f32>, query_products: vec4<f32>) {
  let row = row_group * 4u;
  let own = sums[column];
  let d0 = sums[row] - own;
  let d1 = sums[row + 1u] - own;
  let d2 = sums[row + 2u] - own;
  let d3 = sums[row + 3u] - own;
  let decay = vec4<f32>(exp2_nonpositive(d0.x + d0.y), exp2_nonpositive(d1.x + d1.y), exp2_nonpositive(d2.x + d2.y),
                        exp2_nonpositive(d3.x + d3.y)) * key_scales[column];
  let rows = vec4<u32>(row, row + 1u, row + 2u, row + 3u);
  let key_factor = vec4<f32>(key_scales[row] * betas[row], key_scales[row + 1u] * betas[row + 1u], key_scales[row + 2u] * betas[row + 2u],
                             key_scales[row + 3u] * betas[row + 3u]);
  let query_factor = vec4<f32>(query_scales[row], query_scales[row + 1u], query_scales[row + 2u], query_scales[row + 3u]);
  memory[block_at + (column % 16u) * 4u + row_group % 4u] =
      select(vec4<f32>(0.0), key_products * key_factor * decay, rows > vec4<u32>(column));
  scratch[a_matrix_at + column * 16u + row_group] =
      select(vec4<f32>(0.0), query_products * query_factor * decay, rows >= vec4<u32>(column));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let index = group.x + group.y * groups.x;
  if (index >= params.workgroups) { return; }
  let split = index % params.head_splits;
  let key_head = (index / params.head_splits) % params.key_heads;
  let slot = index / (params.head_splits * params.key_heads);
  let chunk = find_chunk(slot);
  if (chunk.rows == 0u) { return; }
  let key_width = params.key_width;
  let key_pair = slot * params.key_heads + key_head;

  // Products of keys and of queries with keys, one 4x4 tile of a lower block per thread (160 threads).
  let block = min(thread / 16u, kTriangle - 1u);
  let block_row = select(select(select(3u, 2u, block < 6u), 1u, block < 3u), 0u, block < 1u);
  let block_column = block - block_row * (block_row + 1u) / 2u;
  let row_group = block_row * 4u + (thread / 4u) % 4u;
  let column_group = block_column * 4u + thread % 4u;
  let multiplies = thread < kTriangle * 16u && block_row * 16u < chunk.rows;
  var kk0 = vec4<f32>(0.0);
  var kk1 = vec4<f32>(0.0);
  var kk2 = vec4<f32>(0.0);
  var kk3 = vec4<f32>(0.0);
  var qk0 = vec4<f32>(0.0);
  var qk1 = vec4<f32>(0.0);
  var qk2 = vec4<f32>(0.0);
  var qk3 = vec4<f32>(0.0);

  // Threads 0-63 load queries and 64-127 keys: 4 rows x 4 columns each, turned over in registers.
  let loads = thread < 128u;
  let is_key = thread >= 64u;
  let load_group = (thread % 64u) / 4u;
  let load_column = thread % 4u;
  let source_column = select(0u, params.key_heads * key_width, is_key) + key_head * key_width;
  var squares = vec4<f32>(0.0);
  for (var slice = 0u; slice * 4u < key_width; slice++) {
    var r0 = vec4<f32>(0.0);
    var r1 = vec4<f32>(0.0);
    var r2 = vec4<f32>(0.0);
    var r3 = vec4<f32>(0.0);
    let column = slice * 4u + load_column;
    let inside = loads && column < key_width;
    if (inside) {
      r0 = load_inside(chunk, load_group * 4u, source_column + column);
      r1 = load_inside(chunk, load_group * 4u + 1u, source_column + column);
      r2 = load_inside(chunk, load_group * 4u + 2u, source_column + column);
      r3 = load_inside(chunk, load_group * 4u + 3u, source_column + column);
      squares += vec4<f32>(dot(r0, r0), dot(r1, r1), dot(r2, r2), dot(r3, r3));
    }
    let turned = transpose(mat4x4<f32>(r0, r1, r2, r3));
    workgroupBarrier();
    if (loads) {
      let base = select(0u, kKeySlice, is_key);
      memory[base + slice_index(load_column * 4u, load_group)] = turned[0];
      memory[base + slice_index(load_column * 4u + 1u, load_group)] = turned[1];
      memory[base + slice_index(load_column * 4u + 2u, load_group)] = turned[2];
      memory[base + slice_index(load_column * 4u + 3u, load_group)] = turned[3];
    }
    if (inside && split == 0u) {
      if (is_key) {
        let at = params.k_base + (key_pair * kChunk + load_group * 4u) * key_width + column;
        scratch[at] = r0;
        scratch[at + key_width] = r1;
        scratch[at + 2u * key_width] = r2;
        scratch[at + 3u * key_width] = r3;
      } else {
        let at = params.q_base + (key_pair * key_width + column) * 64u + load_group;
        scratch[at] = turned[0];
        scratch[at + 16u] = turned[1];
        scratch[at + 32u] = turned[2];
        scratch[at + 48u] = turned[3];
      }
    }
    workgroupBarrier();
    if (multiplies) {
      for (var i = 0u; i < 16u; i++) {
        let ki = memory[kKeySlice + slice_index(i, row_group)];
        let qi = memory[slice_index(i, row_group)];
        let kj = memory[kKeySlice + slice_index(i, column_group)];
        kk0 += ki * kj.x;
        kk1 += ki * kj.y;
        kk2 += ki * kj.z;
        kk3 += ki * kj.w;
        qk0 += qi * kj.x;
        qk1 += qi * kj.y;
        qk2 += qi * kj.z;
        qk3 += qi * kj.w;
      }
    }
  }

  // L2 norms: four partial sums per row.
  workgroupBarrier();
  if (loads) { memory[thread] = squares; }
  workgroupBarrier();
  if (thread < kChunk) {
    let at = thread / 4u * 4u;
    let queries = memory[at] + memory[at + 1u] + memory[at + 2u] + memory[at + 3u];
    let keys = memory[at + 64u] + memory[at + 65u] + memory[at + 66u] + memory[at + 67u];
    query_scales[thread] = inverseSqrt(queries[thread % 4u] + 1e-6) * params.query_scale;
    key_scales[thread] = inverseSqrt(keys[thread % 4u] + 1e-6);
  }
  workgroupBarrier();

  let octet = thread / 32u;
  let heads = params.heads_per_key / params.head_splits;
  for (var i = 0u; i < heads; i++) {
    let head = key_head * params.heads_per_key + split * heads + i;
    let pair = slot * params.value_heads + head;
    prepare_gates(thread, chunk, head, params.gate_base + pair * 36u);
    if (thread < kTriangle * 16u) {
      let block_at = block * 64u;
      let a_matrix_at = params.a_matrix_base + pair * 1024u;
      store_column(row_group, column_group * 4u, block_at, a_matrix_at, kk0, qk0);
      store_column(row_group, column_group * 4u + 1u, block_at, a_matrix_at, kk1, qk1);
      store_column(row_group, column_group * 4u + 2u, block_at, a_matrix_at, kk2, qk2);
      store_column(row_group, column_group * 4u + 3u, block_at, a_matrix_at, kk3, qk3);
    }
    workgroupBarrier();
    invert_diagonal(thread);
    merge_blocks(thread, select(select(4u, 2u, chunk.rows <= 32u), 0u, chunk.rows <= 16u));

    // U and W in one loop: compilers inline the product once.
    let value_column = 2u * params.key_heads * key_width + head * params.value_width;
    let key_column = (params.key_heads + key_head) * key_width;
    for (var at = thread % 32u; at < params.value_width + key_width; at += 32u) {
      let is_key_column = at >= params.value_width;
      let column = select(at, at - params.value_width, is_key_column);
      multiply_inverse(chunk, octet, select(value_column, key_column, is_key_column) + column, is_key_column);
      if (is_key_column) {
        let to = params.w_base + (pair * key_width + column) * 64u + octet * 2u;
        let upper = transpose(mat4x4<f32>(acc0, acc1, acc2, acc3));
        let lower = transpose(mat4x4<f32>(acc4, acc5, acc6, acc7));
        scratch[to] = upper[0];
        scratch[to + 1u] = lower[0];
        scratch[to + 16u] = upper[1];
        scratch[to + 17u] = lower[1];
        scratch[to + 32u] = upper[2];
        scratch[to + 33u] = lower[2];
        scratch[to + 48u] = upper[3];
        scratch[to + 49u] = lower[3];
      } else {
        let to = params.u_base + (pair * kChunk + octet * 8u) * params.value_width + column;
        scratch[to] = acc0;
        scratch[to + params.value_width] = acc1;
        scratch[to + 2u * params.value_width] = acc2;
        scratch[to + 3u * params.value_width] = acc3;
        scratch[to + 4u * params.value_width] = acc4;
        scratch[to + 5u * params.value_width] = acc5;
        scratch[to + 6u * params.value_width] = acc6;
        scratch[to + 7u * params.value_width] = acc7;
      }
    }
    workgroupBarrier();
  }
}
