// Flash attention in f32. A workgroup takes kRows packed rows - (row, query head of one kv head), so that a group's heads share the loads
// of K and V - against one part of the keys, 64 keys at a time:
//   scores   K and Q pass through workgroup memory in chunks of head columns, transposed; a thread keeps a tile of 4 rows x 4 keys
//   softmax  running maximum per row, in score units; only differences of scores are scaled and exponentiated
//   values   32 threads share 8 rows; each keeps 8 rows x 8 head columns in registers and reads V straight from the buffer
// KIND=part writes unnormalised sums with their maximum and weight sum, which attention_merge combines; KIND=direct writes the result.
// Every sum over head columns, keys and threads has an order that depends on the row and the part only, and fused multiply-adds are
// written out, so other tiles (attention_small.wgsl) give the same bits.
//   UNIT and UNITS  element type of the bound activations: vec4<f32> (vec4) or f32 (scalar)
//@include attention/tile.common.wgsl

// Softmax weights, [key][row quad]; before that [row quad][16] for reductions. Factors and maxima of the rows stand in `chunk` meanwhile.
var<workgroup> weights: array<vec4<f32>, 64 * $RQ>;

@compute @workgroup_size(16 * $RQ)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let work = find_work(group.x + group.y * groups.x);
  if (!work.exists) {
    return;
  }
  let block = work.block;
  let range = work.range;

  // Places of the threads: rows 4 * row_quad.. x keys 4 * key_quad.. of the scores; rows 8 * row_group.. x columns of lane for the values.
  let key_quad = thread % kKeyQuads;
  let row_quad = thread / kKeyQuads;
  let lane = thread % 32u;
  let row_group = thread / 32u;
  let row_swizzle = key_quad & 7u & kRowMask;

  let item = item_of(thread);
  var item_at = query_rows_at(item, block);
  let first_packed = block.first + 4u * row_quad;
  let seen = vec4<u32>(visible_end(block, range, first_packed), visible_end(block, range, first_packed + 1u),
                       visible_end(block, range, first_packed + 2u), visible_end(block, range, first_packed + 3u));
  let quads = params.head_dim / 4u;
  let has_low = lane < quads;
  let has_high = lane + 32u < quads;
  let value_base = params.v_offset + block.kv_head * params.head_dim + 4u * lane;

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
    if (item.is_key) {
      item_at = key_rows_at(item, work, tile);
    }

    // Scores of 4 rows x 4 keys, one vec4 of keys a row.
    var score0 = vec4<f32>(0.0);
    var score1 = vec4<f32>(0.0);
    var score2 = vec4<f32>(0.0);
    var score3 = vec4<f32>(0.0);
    var loaded = load_block(item.is_key, item_at, item.col);
    for (var first_col = 0u; first_col < params.head_dim; first_col += kChunkCols) {
      workgroupBarrier();  // the chunk, and at the first one the weights, have been read
      store_block(item, loaded);
      workgroupBarrier();
      loaded = load_block(item.is_key, item_at, first_col + kChunkCols + item.col);  // on its way while this chunk is used
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
    let value_at = value_base + (tile + work.key_base) * params.v_stride;
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
  var largest_a = chunk[2u * row_group];
  var largest_b = chunk[2u * row_group + 1u];
  // Row after row from the first place; the others move up. Eight calls would multiply the code, an index would spill the sums.
  for (var i = 0u; i < 8u; i++) {
    let packed = block.first + 8u * row_group + i;
    write_quad(block, packed, work.part, lane, largest_a.x, sum_a.x, low0);
    write_quad(block, packed, work.part, lane + 32u, largest_a.x, sum_a.x, high0);
    largest_a = vec4<f32>(largest_a.yzw, largest_b.x);
    largest_b = largest_b.yzww;
    sum_a = vec4<f32>(sum_a.yzw, sum_b.x);
    sum_b = sum_b.yzww;
    low0 = low1;
    low1 = low2;
    low2 = low3;
    low3 = low4;
    low4 = low5;
    low5 = low6;
    low6 = low7;
    high0 = high1;
    high1 = high2;
    high2 = high3;
    high3 = high4;
    high4 = high5;
    high5 = high6;
    high6 = high7;
  }
}
