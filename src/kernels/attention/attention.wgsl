// Flash attention in f32. A workgroup takes kRows packed rows - (row, query head of one kv head), so that a group's heads share the loads
// of K and V - against one part of the keys, 64 keys at a time:
//   scores   K and Q pass through workgroup memory in chunks of head columns, transposed; a thread keeps a tile of 4 rows x 4 keys
//   softmax  running maximum per row, in score units; only differences of scores are scaled and exponentiated
//   values   32 threads share 8 rows; each keeps 8 rows x 8 head columns in registers and reads V straight from the buffer
// KIND=part writes unnormalised sums with their maximum and weight sum, which attention_merge combines; KIND=direct writes the result.
// Every sum over head columns, keys and threads has an order that depends on the row and the part only, and fused multiply-adds are
// written out, so builds of different RQ give the same bits.
//   RQ   quads of packed rows            DCQ  quads of head columns in a chunk ((RQ + 16) * DCQ <= 16 * RQ: one block a thread)
//   PREFETCH 1: the next chunk is loaded before the current one is used; costs registers
//   UNIT and UNITS  element type of the bound activations: vec4<f32> (vec4) or f32 (scalar)
//@include attention/own_part_keys.wgsl

struct Params {
  query_heads: u32,
  kv_heads: u32,
  group: u32,  // query heads of a kv head
  head_dim: u32,
  first_row: u32,  // rows of this dispatch: [first_row, end_row)
  end_row: u32,
  causal: u32,    // 1: keys are the sequence's own rows; 0: keys are the prefix, and rows are packed across sequences
  key_end: u32,   // prefix: number of keys
  q_offset: u32,  // elements, to row first_row
  q_stride: u32,
  k_offset: u32,  // elements, to key row key_origin
  k_stride: u32,
  v_offset: u32,
  v_stride: u32,
  key_origin: u32,
  part_keys: u32,  // prefix: keys of a part
  first_part: u32,
  part_count: u32,
  first_sequence: u32,
  sequence_count: u32,
  first_block: u32,
  block_count: u32,
  min_length: u32,  // own keys: sequences of other lengths are left out
  max_length: u32,
  exponent_scale: f32,  // scale * log2(e)
  workgroups: u32,
  gate_offset: u32,
  gate_stride: u32,
  out_offset: u32,
  out_stride: u32,
  padding0: u32,
  padding1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<$UNIT>;
@group(0) @binding(2) var<storage, read> keys: array<$UNIT>;
@group(0) @binding(3) var<storage, read> values: array<$UNIT>;
@group(0) @binding(4) var<storage, read> sequences: array<vec2<u32>>;  // (start, length)
//@include attention/load.$UNITS.wgsl
//@include attention/emit.$KIND.wgsl

const kRowQuads: u32 = $RQ;
const kRows: u32 = 4 * kRowQuads;
const kThreads: u32 = 16 * kRowQuads;
const kKeyQuads: u32 = 16;
const kKeys: u32 = 64;
const kChunkQuads: u32 = $DCQ;
const kChunkCols: u32 = 4 * kChunkQuads;
const kKeyTile: u32 = kChunkCols * kKeyQuads;  // vec4s of K^T in `chunk`; Q^T follows
const kSwizzle: u32 = 8 / kChunkQuads;         // spreads the columns of a chunk over the banks
const kRowMask: u32 = kRowQuads - 1;
const kMasked: f32 = -1e30;
const kNowhere: u32 = 0xffffffff;

var<workgroup> chunk: array<vec4<f32>, 4 * $DCQ * (16 + $RQ)>;  // K^T | Q^T: [column][key or row quad]; between tiles: one vec4 a row quad
var<workgroup> weights: array<vec4<f32>, 64 * $RQ>;             // softmax weights, [key][row quad]; before that: [row quad][16] for reductions

// Rows of one workgroup: packed rows [first, end) of the rows from `start` on, with query heads kv_head * group + packed % group.
struct Block {
  start: u32,
  first: u32,
  end: u32,
  kv_head: u32,
}

fn row_of(block: Block, packed: u32) -> u32 {
  return block.start + packed / params.group;
}

fn head_of(block: Block, packed: u32) -> u32 {
  return block.kv_head * params.group + packed % params.group;
}

fn has_row(block: Block, packed: u32) -> bool {
  let row = row_of(block, packed);
  return packed < block.end && row >= params.first_row && row < params.end_row;
}

fn query_at(block: Block, packed: u32) -> u32 {
  if (!has_row(block, packed)) {
    return kNowhere;
  }
  return params.q_offset + (row_of(block, packed) - params.first_row) * params.q_stride + head_of(block, packed) * params.head_dim;
}

// Four elements of a row from column `col` on; zero outside.
fn load_row(is_key: bool, at: u32, col: u32) -> vec4<f32> {
  if (at == kNowhere || col >= params.head_dim) {
    return vec4<f32>(0.0);
  }
  if (is_key) {
    return load_key(at + col);
  }
  return load_query(at + col);
}

fn load_part(present: bool, at: u32) -> vec4<f32> {
  if (!present) {
    return vec4<f32>(0.0);
  }
  return load_value(at);
}

fn max4(v: vec4<f32>) -> f32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn weigh(scores: vec4<f32>, largest: f32) -> vec4<f32> {
  return select(exp2((scores - largest) * params.exponent_scale), vec4<f32>(0.0), scores <= vec4<f32>(kMasked));
}

// Block of 4 rows x 4 columns, transposed: one vec4 of rows a column.
fn load_block(is_key: bool, at: vec4<u32>, col: u32) -> mat4x4<f32> {
  return transpose(mat4x4<f32>(load_row(is_key, at.x, col), load_row(is_key, at.y, col), load_row(is_key, at.z, col),
                               load_row(is_key, at.w, col)));
}

// Which keys a workgroup takes: [first, end), as row numbers of the prefix or of the sequence.
struct KeyRange {
  first: u32,
  end: u32,
}

fn part_range(block: Block, part: u32, length: u32) -> KeyRange {
  if (params.causal == 0u) {
    return KeyRange(part * params.part_keys, min((part + 1u) * params.part_keys, params.key_end));
  }
  let part_keys = own_part_keys(length);
  let last_packed = min(block.first + kRows, block.end) - 1u;
  return KeyRange(part * part_keys, min((part + 1u) * part_keys, last_packed / params.group + 1u));
}

// First key that a packed row does not see, inside the range.
fn visible_end(block: Block, range: KeyRange, packed: u32) -> u32 {
  return select(range.end, min(range.end, packed / params.group + 1u), params.causal == 1u);
}

@compute @workgroup_size(16 * $RQ)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  // Workgroup number: kv head, part, block (the last, which sees most keys, first), sequence.
  var rest = group.x + group.y * groups.x;
  if (rest >= params.workgroups) {
    return;
  }
  let kv_head = rest % params.kv_heads;
  rest /= params.kv_heads;
  let part = params.first_part + rest % params.part_count;
  rest /= params.part_count;
  let block_index = params.first_block + params.block_count - 1u - rest % params.block_count;
  let sequence = params.first_sequence + rest / params.block_count;

  var span = vec2<u32>(params.first_row, params.end_row - params.first_row);
  if (params.causal == 1u) {
    span = sequences[sequence];
  }
  let block = Block(span.x, block_index * kRows, span.y * params.group, kv_head);
  if (block.first >= block.end || span.y < params.min_length || span.y > params.max_length) {
    return;
  }
  if (row_of(block, block.first) >= params.end_row || row_of(block, min(block.first + kRows, block.end) - 1u) < params.first_row) {
    return;
  }
  let range = part_range(block, part, span.y);
  if (range.first >= range.end) {
    return;
  }

  // Places of the threads: rows 4 * row_quad.. x keys 4 * key_quad.. of the scores; rows 8 * row_group.. x columns of lane for the values.
  let key_quad = thread % kKeyQuads;
  let row_quad = thread / kKeyQuads;
  let lane = thread % 32u;
  let row_group = thread / 32u;
  let row_swizzle = key_quad & 7u & kRowMask;

  // Block of 4 rows x 4 columns that this thread brings into `chunk`, of keys or of queries.
  let loads = thread < (kKeyQuads + kRowQuads) * kChunkQuads;
  let item_quad = thread % kChunkQuads;
  let item_row = thread / kChunkQuads;
  let item_is_key = item_row < kKeyQuads;
  let item_row_quad = item_row - kKeyQuads;  // of the queries
  let item_store = select(kKeyTile + 4u * item_quad * kRowQuads + (item_row_quad ^ ((item_quad * kSwizzle) & kRowMask)),
                          4u * item_quad * kKeyQuads + (item_row ^ (item_quad * kSwizzle)), item_is_key);
  let item_pitch = select(kRowQuads, kKeyQuads, item_is_key);
  var item_at = vec4<u32>(kNowhere);
  if (loads && !item_is_key) {
    let packed = block.first + 4u * item_row_quad;
    item_at = vec4<u32>(query_at(block, packed), query_at(block, packed + 1u), query_at(block, packed + 2u), query_at(block, packed + 3u));
  }

  let first_packed = block.first + 4u * row_quad;
  let seen = vec4<u32>(visible_end(block, range, first_packed), visible_end(block, range, first_packed + 1u),
                       visible_end(block, range, first_packed + 2u), visible_end(block, range, first_packed + 3u));
  // Rows of the key and value bindings: key number + key_base.
  let key_base = select(0u, span.x, params.causal == 1u) - params.key_origin;
  let quads = params.head_dim / 4u;
  let has_low = lane < quads;
  let has_high = lane + 32u < quads;
  let value_base = params.v_offset + kv_head * params.head_dim + 4u * lane;

  var largest = vec4<f32>(kMasked);  // scores of rows 4 * row_quad..
  var weight_sums = vec4<f32>(0.0);  // of these rows over this thread's keys
  // Weighted sums of V: rows 8 * row_group + 0..7, columns 4 * lane.. (low) and 4 * lane + 128.. (high). Named, because an array
  // with a variable index would leave the registers.
  var low0 = vec4<f32>(0.0);
  var low1 = vec4<f32>(0.0);
  var low2 = vec4<f32>(0.0);
  var low3 = vec4<f32>(0.0);
  var low4 = vec4<f32>(0.0);
  var low5 = vec4<f32>(0.0);
  var low6 = vec4<f32>(0.0);
  var low7 = vec4<f32>(0.0);
  var high0 = vec4<f32>(0.0);
  var high1 = vec4<f32>(0.0);
  var high2 = vec4<f32>(0.0);
  var high3 = vec4<f32>(0.0);
  var high4 = vec4<f32>(0.0);
  var high5 = vec4<f32>(0.0);
  var high6 = vec4<f32>(0.0);
  var high7 = vec4<f32>(0.0);

  for (var tile = range.first; tile < range.end; tile += kKeys) {
    if (loads && item_is_key) {
      let key = tile + 4u * item_row;
      let at = params.k_offset + (key + key_base) * params.k_stride + kv_head * params.head_dim;
      item_at = select(vec4<u32>(kNowhere), at + vec4<u32>(0u, 1u, 2u, 3u) * params.k_stride,
                       key + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(range.end));
    }

    // Scores of 4 rows x 4 keys, one vec4 of keys a row.
    var score0 = vec4<f32>(0.0);
    var score1 = vec4<f32>(0.0);
    var score2 = vec4<f32>(0.0);
    var score3 = vec4<f32>(0.0);
    var loaded = load_block(item_is_key, item_at, 4u * item_quad);  //@if PREFETCH=1
    for (var first_col = 0u; first_col < params.head_dim; first_col += kChunkCols) {
      let loaded = load_block(item_is_key, item_at, first_col + 4u * item_quad);  //@if PREFETCH=0
      workgroupBarrier();  // the chunk, and at the first one the weights, have been read
      if (loads) {
        chunk[item_store] = loaded[0];
        chunk[item_store + item_pitch] = loaded[1];
        chunk[item_store + 2u * item_pitch] = loaded[2];
        chunk[item_store + 3u * item_pitch] = loaded[3];
      }
      workgroupBarrier();
      loaded = load_block(item_is_key, item_at, first_col + kChunkCols + 4u * item_quad);  //@if PREFETCH=1
      for (var quad = 0u; quad < kChunkQuads; quad++) {
        let key_at = 4u * quad * kKeyQuads + (key_quad ^ (quad * kSwizzle));
        let row_at = kKeyTile + 4u * quad * kRowQuads + (row_quad ^ ((quad * kSwizzle) & kRowMask));
        for (var col = 0u; col < 4u; col++) {
          let q = chunk[row_at + col * kRowQuads];
          let k = chunk[key_at + col * kKeyQuads];
          score0 = fma(vec4<f32>(q.x), k, score0);
          score1 = fma(vec4<f32>(q.y), k, score1);
          score2 = fma(vec4<f32>(q.z), k, score2);
          score3 = fma(vec4<f32>(q.w), k, score3);
        }
      }
    }
    let numbers = tile + 4u * key_quad + vec4<u32>(0u, 1u, 2u, 3u);
    score0 = select(vec4<f32>(kMasked), score0, numbers < vec4<u32>(seen.x));
    score1 = select(vec4<f32>(kMasked), score1, numbers < vec4<u32>(seen.y));
    score2 = select(vec4<f32>(kMasked), score2, numbers < vec4<u32>(seen.z));
    score3 = select(vec4<f32>(kMasked), score3, numbers < vec4<u32>(seen.w));

    // Running maximum of each row over the 16 threads that share it.
    weights[row_quad * 16u + key_quad] = vec4<f32>(max4(score0), max4(score1), max4(score2), max4(score3));
    workgroupBarrier();
    let before = largest;
    for (var i = 0u; i < 16u; i++) {
      largest = max(largest, weights[row_quad * 16u + i]);
    }
    let fade = exp2((before - largest) * params.exponent_scale);
    let weight0 = weigh(score0, largest.x);
    let weight1 = weigh(score1, largest.y);
    let weight2 = weigh(score2, largest.z);
    let weight3 = weigh(score3, largest.w);
    weight_sums = fma(weight_sums, fade, vec4<f32>(sum4(weight0), sum4(weight1), sum4(weight2), sum4(weight3)));
    workgroupBarrier();  // the maxima have been read
    let weights_at = 4u * key_quad * kRowQuads + (row_quad ^ row_swizzle);
    weights[weights_at] = vec4<f32>(weight0.x, weight1.x, weight2.x, weight3.x);
    weights[weights_at + kRowQuads] = vec4<f32>(weight0.y, weight1.y, weight2.y, weight3.y);
    weights[weights_at + 2u * kRowQuads] = vec4<f32>(weight0.z, weight1.z, weight2.z, weight3.z);
    weights[weights_at + 3u * kRowQuads] = vec4<f32>(weight0.w, weight1.w, weight2.w, weight3.w);
    if (key_quad == 0u) {
      chunk[row_quad] = fade;
    }
    workgroupBarrier();

    // Values, four keys at a time. Behind the last key the weights are zero and its row stands in.
    let fade_a = chunk[2u * row_group];
    let fade_b = chunk[2u * row_group + 1u];
    low0 *= fade_a.x;
    low1 *= fade_a.y;
    low2 *= fade_a.z;
    low3 *= fade_a.w;
    low4 *= fade_b.x;
    low5 *= fade_b.y;
    low6 *= fade_b.z;
    low7 *= fade_b.w;
    high0 *= fade_a.x;
    high1 *= fade_a.y;
    high2 *= fade_a.z;
    high3 *= fade_a.w;
    high4 *= fade_b.x;
    high5 *= fade_b.y;
    high6 *= fade_b.z;
    high7 *= fade_b.w;
    let count = min(kKeys, range.end - tile);
    let value_at = value_base + (tile + key_base) * params.v_stride;
    for (var first_key = 0u; first_key < count; first_key += 4u) {
      let swizzle = (first_key / 4u) & 7u & kRowMask;
      let a_at = first_key * kRowQuads + ((2u * row_group) ^ swizzle);
      let b_at = first_key * kRowQuads + ((2u * row_group + 1u) ^ swizzle);
      for (var key = 0u; key < 4u; key++) {
        let at = value_at + min(first_key + key, count - 1u) * params.v_stride;
        let low = load_part(has_low, at);
        let high = load_part(has_high, at + 128u);
        let a = weights[a_at + key * kRowQuads];
        let b = weights[b_at + key * kRowQuads];
        low0 = fma(vec4<f32>(a.x), low, low0);
        low1 = fma(vec4<f32>(a.y), low, low1);
        low2 = fma(vec4<f32>(a.z), low, low2);
        low3 = fma(vec4<f32>(a.w), low, low3);
        low4 = fma(vec4<f32>(b.x), low, low4);
        low5 = fma(vec4<f32>(b.y), low, low5);
        low6 = fma(vec4<f32>(b.z), low, low6);
        low7 = fma(vec4<f32>(b.w), low, low7);
        high0 = fma(vec4<f32>(a.x), high, high0);
        high1 = fma(vec4<f32>(a.y), high, high1);
        high2 = fma(vec4<f32>(a.z), high, high2);
        high3 = fma(vec4<f32>(a.w), high, high3);
        high4 = fma(vec4<f32>(b.x), high, high4);
        high5 = fma(vec4<f32>(b.y), high, high5);
        high6 = fma(vec4<f32>(b.z), high, high6);
        high7 = fma(vec4<f32>(b.w), high, high7);
      }
    }
  }

  // Sums of the weights over the 16 threads of a row, in order of the threads.
  workgroupBarrier();  // weights and fades have been read
  weights[row_quad * 16u + key_quad] = weight_sums;
  if (key_quad == 0u) {
    chunk[row_quad] = largest;
  }
  workgroupBarrier();
  var sum_a = vec4<f32>(0.0);
  var sum_b = vec4<f32>(0.0);
  for (var i = 0u; i < 16u; i++) {
    sum_a += weights[2u * row_group * 16u + i];
    sum_b += weights[(2u * row_group + 1u) * 16u + i];
  }
  let largest_a = chunk[2u * row_group];
  let largest_b = chunk[2u * row_group + 1u];
  let packed = block.first + 8u * row_group;
  write_row(block, packed, part, lane, largest_a.x, sum_a.x, low0, high0);
  write_row(block, packed + 1u, part, lane, largest_a.y, sum_a.y, low1, high1);
  write_row(block, packed + 2u, part, lane, largest_a.z, sum_a.z, low2, high2);
  write_row(block, packed + 3u, part, lane, largest_a.w, sum_a.w, low3, high3);
  write_row(block, packed + 4u, part, lane, largest_b.x, sum_b.x, low4, high4);
  write_row(block, packed + 5u, part, lane, largest_b.y, sum_b.y, low5, high5);
  write_row(block, packed + 6u, part, lane, largest_b.z, sum_b.z, low6, high6);
  write_row(block, packed + 7u, part, lane, largest_b.w, sum_b.w, low7, high7);
}
