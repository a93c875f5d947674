// Many rows: a workgroup of 256 threads takes 64 packed rows - (row, query head of one kv head) - and 4 * LANES value columns through all
// their blocks of 64 keys, and writes the result. Same bits as attend_split with attend_combine: every sum has the same terms in the same
// order, with fused multiply-adds written out.
//   scores   K and Q pass through workgroup memory in chunks of head columns; a thread keeps 4 rows x 4 keys
//   weights  largest score and sum of the block per row, by 16 threads
//   values   LANES threads share LANES / 4 rows; each keeps four columns of them, eight keys at a time
//   QUADS    quads of rows of a thread for the values: LANES / 16
//@include attend/rows_and_keys.wgsl
@group(0) @binding(5) var<storage, read> sinks: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<$UNIT>;
//@include attend/store.$UNITS.wgsl
//@include attend/merge.wgsl
//@include common/tile_chunk.wgsl

const kLanes: u32 = $LANES;
const kShares: u32 = 512;  // places in `chunk` while it holds no keys: shares of the 16 threads of a row | factors of the rows
const kFactors: u32 = 768;

// Softmax weights, [key][row quad]; before that [row quad][16] for the maxima.
var<workgroup> weights: array<vec4<f32>, 64 * $RQ>;

fn max4(v: vec4<f32>) -> f32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

fn sum4(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}

fn weigh(scores: vec4<f32>, largest: f32) -> vec4<f32> {
  return select(exp2((scores - largest) * params.exponent_scale), vec4<f32>(0.0), scores <= vec4<f32>(kMasked));
}

// The scores of four keys from `key` on; those that the row does not see are masked.
fn mask(scores: vec4<f32>, packed: u32, key: u32) -> vec4<f32> {
  let row = packed / params.group;
  if (packed >= params.packed_rows || key > params.first_position + row) {
    return vec4<f32>(kMasked);
  }
  let bits = (vec4<u32>(selected_bits(row, key)) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
  let seen = vec4<bool>(in_reach(row, key), in_reach(row, key + 1u), in_reach(row, key + 2u), in_reach(row, key + 3u));
  return select(vec4<f32>(kMasked), scores, seen & (bits == vec4<u32>(1u)));
}

// Four rows x four columns of keys or queries, transposed.
fn load_tile(item: Item, at: vec4<u32>, col: u32) -> mat4x4<f32> {
  let dim = params.key_dim;
  if (item.is_key) {
    return transpose(mat4x4<f32>(load_key(at.x, col, dim), load_key(at.y, col, dim), load_key(at.z, col, dim), load_key(at.w, col, dim)));
  }
  return transpose(
      mat4x4<f32>(load_query(at.x, col, dim), load_query(at.y, col, dim), load_query(at.z, col, dim), load_query(at.w, col, dim)));
}

fn rows_at(item: Item, kv_head: u32, first: u32) -> vec4<u32> {
  let row = first + 4u * item.row_quad;
  if (item.is_key) {
    return vec4<u32>(key_offset(kv_head, row), key_offset(kv_head, row + 1u), key_offset(kv_head, row + 2u), key_offset(kv_head, row + 3u));
  }
  return vec4<u32>(query_offset(kv_head, row), query_offset(kv_head, row + 1u), query_offset(kv_head, row + 2u),
                   query_offset(kv_head, row + 3u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let number = group.x + group.y * groups.x;
  if (number >= params.workgroups) {
    return;
  }
  // The last rows see most keys and go first.
  let kv_head = number % params.kv_heads;
  let column_tile = number / params.kv_heads % params.column_tiles;
  let first_packed = (params.row_tiles - 1u - number / params.kv_heads / params.column_tiles) * kRows;
  let end_packed = min(first_packed + kRows, params.packed_rows);
  let end_key = params.first_position + (end_packed - 1u) / params.group + 1u;
  let first_row_end = params.first_position + first_packed / params.group + 1u;
  let first_key = select(0u, first_row_end - params.window, params.window > 0u && first_row_end > params.window);

  // Places of the threads: rows 4 * row_quad.. x keys 4 * key_quad.. of the scores; row quads QUADS * row_group.. x one quad of columns.
  let key_quad = thread % kKeyQuads;
  let row_quad = thread / kKeyQuads;
  let row_group = thread / kLanes;
  let value_col = 4u * (column_tile * kLanes + thread % kLanes);
  let row_swizzle = key_quad & 7u & kRowMask;
  let item = item_of(thread);
  let packed = first_packed + 4u * row_quad;

  var largest = vec4<f32>(kMasked);  // of rows 4 * row_quad.., over the blocks so far
  var weight_sum = vec4<f32>(0.0);
//@for A $QUADS
//@for I 4
  var total${A}${I} = vec4<f32>(0.0);  // weighted sum of the values: row ${I} of row quad ${A} of the group
//@endfor
//@endfor

  for (var block = first_key / kBlockKeys; block * kBlockKeys < end_key; block++) {
    let block_key = block * kBlockKeys;
    if (!block_has_work(first_packed, end_packed, block_key)) {
      continue;
    }
    let item_at = rows_at(item, kv_head, select(first_packed, block_key, item.is_key));
    var score0 = vec4<f32>(0.0);
    var score1 = vec4<f32>(0.0);
    var score2 = vec4<f32>(0.0);
    var score3 = vec4<f32>(0.0);
    var loaded = load_tile(item, item_at, item.col);
    for (var first_col = 0u; first_col < params.key_dim; first_col += kChunkCols) {
      workgroupBarrier();  // the chunk has been read
      store_block(item, loaded);
      workgroupBarrier();
      loaded = load_tile(item, item_at, first_col + kChunkCols + item.col);
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
    let key = block_key + 4u * key_quad;
    score0 = mask(score0, packed, key);
    score1 = mask(score1, packed + 1u, key);
    score2 = mask(score2, packed + 2u, key);
    score3 = mask(score3, packed + 3u, key);

    weights[row_quad * 16u + key_quad] = vec4<f32>(max4(score0), max4(score1), max4(score2), max4(score3));
    workgroupBarrier();  // also: the chunk has been read
    var block_largest = vec4<f32>(kMasked);
    for (var i = 0u; i < 16u; i++) {
      block_largest = max(block_largest, weights[row_quad * 16u + i]);
    }
    let weight0 = weigh(score0, block_largest.x);
    let weight1 = weigh(score1, block_largest.y);
    let weight2 = weigh(score2, block_largest.z);
    let weight3 = weigh(score3, block_largest.w);
    chunk[kShares + row_quad * 16u + key_quad] = vec4<f32>(sum4(weight0), sum4(weight1), sum4(weight2), sum4(weight3));
    workgroupBarrier();  // the maxima have been read
    let weights_at = 4u * key_quad * kRowQuads + (row_quad ^ row_swizzle);
    weights[weights_at] = vec4<f32>(weight0.x, weight1.x, weight2.x, weight3.x);
    weights[weights_at + kRowQuads] = vec4<f32>(weight0.y, weight1.y, weight2.y, weight3.y);
    weights[weights_at + 2u * kRowQuads] = vec4<f32>(weight0.z, weight1.z, weight2.z, weight3.z);
    weights[weights_at + 3u * kRowQuads] = vec4<f32>(weight0.w, weight1.w, weight2.w, weight3.w);
    var block_sum = vec4<f32>(0.0);
    for (var i = 0u; i < 16u; i++) {
      block_sum += chunk[kShares + row_quad * 16u + i];
    }
    let factors_x = merge_factors(largest.x, block_largest.x, params.exponent_scale);
    let factors_y = merge_factors(largest.y, block_largest.y, params.exponent_scale);
    let factors_z = merge_factors(largest.z, block_largest.z, params.exponent_scale);
    let factors_w = merge_factors(largest.w, block_largest.w, params.exponent_scale);
    let keep = vec4<f32>(factors_x.x, factors_y.x, factors_z.x, factors_w.x);
    let take = vec4<f32>(factors_x.y, factors_y.y, factors_z.y, factors_w.y);
    weight_sum = fma(block_sum, take, weight_sum * keep);
    largest = max(largest, block_largest);
    if (key_quad == 0u) {
      chunk[kFactors + 2u * row_quad] = keep;
      chunk[kFactors + 2u * row_quad + 1u] = take;
    }
    workgroupBarrier();

//@for A $QUADS
//@for I 4
    var sum${A}${I} = vec4<f32>(0.0);
//@endfor
//@endfor
    for (var eight = 0u; eight < 8u; eight++) {
      let eight_key = block_key + 8u * eight;
//@for K 8
      let value${K} = load_value(value_offset(kv_head, eight_key + ${K}u), value_col, params.value_dim);
//@endfor
//@for A $QUADS
      {
        let quad_row = $QUADS * row_group + ${A}u;
        let low_at = 8u * eight * kRowQuads + (quad_row ^ ((2u * eight) & 7u & kRowMask));
        let high_at = (8u * eight + 4u) * kRowQuads + (quad_row ^ ((2u * eight + 1u) & 7u & kRowMask));
        var part0 = vec4<f32>(0.0);
        var part1 = vec4<f32>(0.0);
        var part2 = vec4<f32>(0.0);
        var part3 = vec4<f32>(0.0);
//@for K 8
        let weight${K} = weights[select(low_at + ${K}u * kRowQuads, high_at + (${K}u & 3u) * kRowQuads, ${K}u >= 4u)];
        part0 = fma(vec4<f32>(weight${K}.x), value${K}, part0);
        part1 = fma(vec4<f32>(weight${K}.y), value${K}, part1);
        part2 = fma(vec4<f32>(weight${K}.z), value${K}, part2);
        part3 = fma(vec4<f32>(weight${K}.w), value${K}, part3);
//@endfor
        sum${A}0 += part0;
        sum${A}1 += part1;
        sum${A}2 += part2;
        sum${A}3 += part3;
      }
//@endfor
    }
//@for A $QUADS
    let keep${A} = chunk[kFactors + 2u * ($QUADS * row_group + ${A}u)];
    let take${A} = chunk[kFactors + 2u * ($QUADS * row_group + ${A}u) + 1u];
//@for I 4
    total${A}${I} = fma(sum${A}${I}, vec4<f32>(take${A}[${I}]), total${A}${I} * keep${A}[${I}]);
//@endfor
//@endfor
  }

  workgroupBarrier();  // the factors have been read
  if (key_quad == 0u) {
    for (var i = 0u; i < 4u; i++) {
      var sink = 0.0;
      if (params.has_sinks == 1u) {
        sink = sinks[head_of(kv_head, packed + i)];
      }
      chunk[kFactors + row_quad][i] = normaliser(largest[i], weight_sum[i], params.exponent_scale, params.has_sinks == 1u, sink);
    }
  }
  workgroupBarrier();
//@for A $QUADS
//@for I 4
  {
    let at = first_packed + 4u * ($QUADS * row_group + ${A}u) + ${I}u;
    if (at < params.packed_rows && value_col < params.value_dim) {
      store_out(params.out_offset + at / params.group * params.out_stride + head_of(kv_head, at) * params.value_dim, value_col,
                params.value_dim, total${A}${I} * chunk[kFactors + $QUADS * row_group + ${A}u][${I}]);
    }
  }
//@endfor
//@endfor
}
