// What the attention kernels share: parameters, bindings, which rows and keys a workgroup takes, how K and Q pass through workgroup memory.
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

//@include common/tile_chunk.wgsl

const kMasked: f32 = -1e30;
const kNowhere: u32 = 0xffffffff;

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
  let last_row = min(last_packed / params.group, params.end_row - 1u - block.start);  // keys behind the slice may not be bound
  return KeyRange(part * part_keys, min((part + 1u) * part_keys, last_row + 1u));
}

// First key that a packed row does not see, inside the range.
fn visible_end(block: Block, range: KeyRange, packed: u32) -> u32 {
  return select(range.end, min(range.end, packed / params.group + 1u), params.causal == 1u);
}

// The work of one workgroup.
struct Work {
  exists: bool,
  block: Block,
  range: KeyRange,
  part: u32,
  key_base: u32,  // key number + key_base: row of the key and value bindings
}

// Workgroup number: kv head, part, block (the last, which sees most keys, first), sequence.
fn find_work(number: u32) -> Work {
  var work: Work;
  if (number >= params.workgroups) {
    return work;
  }
  var rest = number / params.kv_heads;
  work.part = params.first_part + rest % params.part_count;
  rest /= params.part_count;
  let block_index = params.first_block + params.block_count - 1u - rest % params.block_count;
  var span = vec2<u32>(params.first_row, params.end_row - params.first_row);
  if (params.causal == 1u) {
    span = sequences[params.first_sequence + rest / params.block_count];
  }
  work.block = Block(span.x, block_index * kRows, span.y * params.group, number % params.kv_heads);
  if (work.block.first >= work.block.end || span.y < params.min_length || span.y > params.max_length) {
    return work;
  }
  let last = min(work.block.first + kRows, work.block.end) - 1u;
  if (row_of(work.block, work.block.first) >= params.end_row || row_of(work.block, last) < params.first_row) {
    return work;
  }
  work.range = part_range(work.block, work.part, span.y);
  work.key_base = select(0u, span.x, params.causal == 1u) - params.key_origin;
  work.exists = work.range.first < work.range.end;
  return work;
}

fn query_rows_at(item: Item, block: Block) -> vec4<u32> {
  let packed = block.first + 4u * item.row_quad;
  if (!item.loads || item.is_key) {
    return vec4<u32>(kNowhere);
  }
  return vec4<u32>(query_at(block, packed), query_at(block, packed + 1u), query_at(block, packed + 2u), query_at(block, packed + 3u));
}

fn key_rows_at(item: Item, work: Work, tile: u32) -> vec4<u32> {
  let keys = tile + 4u * item.row_quad + vec4<u32>(0u, 1u, 2u, 3u);
  let at = params.k_offset + (keys + work.key_base) * params.k_stride + work.block.kv_head * params.head_dim;
  return select(vec4<u32>(kNowhere), at, keys < vec4<u32>(work.range.end));
}
