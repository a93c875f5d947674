// What attend_split and attend_tile share: parameters, inputs, and which keys a row sees.
// A packed row is (row, query head of one kv head): row * group + head in the group; rows count from the first of the slice.
struct Params {
  query_heads: u32,
  kv_heads: u32,
  group: u32,  // query heads of a kv head
  key_dim: u32,
  value_dim: u32,
  packed_rows: u32,     // rows of the slice * group
  first_position: u32,  // of the slice's first row
  key_count: u32,
  window: u32,       // 0: all
  first_block: u32,  // of this dispatch
  row_tiles: u32,
  key_origin: u32,  // the first key that is bound
  q_offset: u32,    // elements, to the slice's first row
  q_stride: u32,
  k_offset: u32,  // elements, to key key_origin
  k_stride: u32,
  v_offset: u32,
  v_stride: u32,
  selected_offset: u32,  // words, to the slice's first row
  selected_words: u32,   // of a row; 0: every key is selected
  exponent_scale: f32,   // scale * log2(e)
  workgroups: u32,
  out_offset: u32,  // elements, to the slice's first row; attend_tile only, as the rest
  out_stride: u32,
  column_tiles: u32,
  has_sinks: u32,
  padding0: u32,
  padding1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<$UNIT>;
@group(0) @binding(2) var<storage, read> keys: array<$UNIT>;
@group(0) @binding(3) var<storage, read> values: array<$UNIT>;
@group(0) @binding(4) var<storage, read> selected: array<u32>;
//@include attend/load.$UNITS.wgsl
//@include attend/load_value.$UNITS.wgsl

const kNowhere: u32 = 0xffffffff;
const kBlockKeys: u32 = 64;

fn head_of(kv_head: u32, packed: u32) -> u32 {
  return kv_head * params.group + packed % params.group;
}

// Element offsets of rows, kNowhere for those that do not exist.
fn query_offset(kv_head: u32, packed: u32) -> u32 {
  let at = params.q_offset + packed / params.group * params.q_stride + head_of(kv_head, packed) * params.key_dim;
  return select(kNowhere, at, packed < params.packed_rows);
}

fn key_offset(kv_head: u32, key: u32) -> u32 {
  let at = params.k_offset + (key - params.key_origin) * params.k_stride + kv_head * params.key_dim;
  return select(kNowhere, at, key < params.key_count);
}

fn value_offset(kv_head: u32, key: u32) -> u32 {
  let at = params.v_offset + (key - params.key_origin) * params.v_stride + kv_head * params.value_dim;
  return select(kNowhere, at, key < params.key_count);
}

fn in_reach(row: u32, key: u32) -> bool {
  let position = params.first_position + row;
  return key <= position && (params.window == 0u || position - key < params.window);
}

// Bit i: key + i of the same word is selected. `key` is in reach of the row.
fn selected_bits(row: u32, key: u32) -> u32 {
  if (params.selected_words == 0u) {
    return 0xffffffffu;
  }
  return selected[params.selected_offset + row * params.selected_words + key / 32u] >> (key % 32u);
}

// Whether some of the packed rows [first, end) may see a key of a block. Uniform for a workgroup.
fn block_has_work(first: u32, end: u32, first_key: u32) -> bool {
  let first_row = first / params.group;
  let last_row = (end - 1u) / params.group;
  if (first_key > params.first_position + last_row) {
    return false;
  }
  let first_position = params.first_position + first_row;
  if (params.window > 0u && first_position >= params.window && first_key + kBlockKeys <= first_position - params.window + 1u) {
    return false;
  }
  if (params.selected_words == 0u) {
    return true;
  }
  let word = first_key / 32u;
  for (var row = first_row; row <= last_row; row++) {
    let at = params.selected_offset + row * params.selected_words + word;
    if (selected[at] != 0u) {
      return true;
    }
    if (word + 1u < params.selected_words && selected[at + 1u] != 0u) {
      return true;
    }
  }
  return false;
}
