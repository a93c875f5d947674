// Attention for few rows, and the base variant: as attention.wgsl with 16 packed rows and 256 threads, so that a thread keeps little
// (software adapters compile large register tiles slowly, because every barrier saves them) and one row still keeps 256 threads busy.
//   scores   a thread keeps one row x 4 keys
//   values   64 threads share 4 rows; each keeps 4 rows x 4 head columns
// Same bits as attention.wgsl: every sum has the same terms in the same order.
//@include attention/tile.common.wgsl

const kPackedRows: u32 = 16;

var<workgroup> weights: array<f32, 1024>;   // softmax weights, [key][row]
var<workgroup> shares: array<f32, 256>;     // of a row's 16 threads, [row][16]
var<workgroup> row_values: array<f32, 16>;  // one number a row

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let work = find_work(group.x + group.y * groups.x);
  if (!work.exists) {
    return;
  }
  let block = work.block;
  let range = work.range;

  // Places of the threads: row x keys 4 * key_quad.. of the scores; rows 4 * row_group.. x columns 4 * lane.. of the values.
  let key_quad = thread % kKeyQuads;
  let row = thread / kKeyQuads;
  let lane = thread % 64u;
  let row_group = thread / 64u;

  let item = item_of(thread);
  var item_at = query_rows_at(item, block);
  let seen = visible_end(block, range, block.first + row);
  let has_columns = 4u * lane < params.head_dim;
  let value_base = params.v_offset + block.kv_head * params.head_dim + 4u * lane;

  var largest = kMasked;   // score of the row
  var weight_sum = 0.0;    // of the row over this thread's keys
  var value0 = vec4<f32>(0.0);
  var value1 = vec4<f32>(0.0);
  var value2 = vec4<f32>(0.0);
  var value3 = vec4<f32>(0.0);

  for (var tile = range.first; tile < range.end; tile += kKeys) {
    if (item.is_key) {
      item_at = key_rows_at(item, work, tile);
    }
    var scores = vec4<f32>(0.0);
    for (var first_col = 0u; first_col < params.head_dim; first_col += kChunkCols) {
      let loaded = load_block(item.is_key, item_at, first_col + item.col);
      workgroupBarrier();  // the chunk has been read
      store_block(item, loaded);
      workgroupBarrier();
      for (var quad = 0u; quad < kChunkQuads; quad++) {
        let key_at = 4u * quad * kKeyQuads + (key_quad ^ (quad * kSwizzle));
        let row_at = kKeyTile + 4u * quad * kRowQuads + ((row / 4u) ^ ((quad * kSwizzle) & kRowMask));
        for (var col = 0u; col < 4u; col++) {
          scores = fma(vec4<f32>(chunk[row_at + col * kRowQuads][row % 4u]), chunk[key_at + col * kKeyQuads], scores);
        }
      }
    }
    let numbers = tile + 4u * key_quad + vec4<u32>(0u, 1u, 2u, 3u);
    scores = select(vec4<f32>(kMasked), scores, numbers < vec4<u32>(seen));

    shares[thread] = max4(scores);
    workgroupBarrier();  // also: the weights of the tile before have been read
    let before = largest;
    for (var i = 0u; i < 16u; i++) {
      largest = max(largest, shares[row * 16u + i]);
    }
    let fade = exp2((before - largest) * params.exponent_scale);
    let weight = weigh(scores, largest);
    weight_sum = fma(weight_sum, fade, sum4(weight));
    let weights_at = 4u * key_quad * kPackedRows + row;
    weights[weights_at] = weight.x;
    weights[weights_at + kPackedRows] = weight.y;
    weights[weights_at + 2u * kPackedRows] = weight.z;
    weights[weights_at + 3u * kPackedRows] = weight.w;
    if (key_quad == 0u) {
      row_values[row] = fade;
    }
    workgroupBarrier();

    value0 *= row_values[4u * row_group];
    value1 *= row_values[4u * row_group + 1u];
    value2 *= row_values[4u * row_group + 2u];
    value3 *= row_values[4u * row_group + 3u];
    let count = min(kKeys, range.end - tile);
    let value_at = value_base + (tile + work.key_base) * params.v_stride;
    for (var key = 0u; key < count; key++) {
      let value = load_part(has_columns, value_at + key * params.v_stride);
      let at = key * kPackedRows + 4u * row_group;
      value0 = fma(vec4<f32>(weights[at]), value, value0);
      value1 = fma(vec4<f32>(weights[at + 1u]), value, value1);
      value2 = fma(vec4<f32>(weights[at + 2u]), value, value2);
      value3 = fma(vec4<f32>(weights[at + 3u]), value, value3);
    }
  }

  // Sums of the weights over the 16 threads of a row, in order of the threads.
  workgroupBarrier();  // maxima and factors have been read
  shares[thread] = weight_sum;
  if (key_quad == 0u) {
    row_values[row] = largest;
  }
  workgroupBarrier();
  for (var i = 0u; i < 4u; i++) {
    let emitted = 4u * row_group + i;
    var sum = 0.0;
    for (var j = 0u; j < 16u; j++) {
      sum += shares[emitted * 16u + j];
    }
    write_quad(block, block.first + emitted, work.part, lane, row_values[emitted], sum, value0);
    value0 = value1;
    value1 = value2;
    value2 = value3;
  }
}
