// Parameters shared by the gated_delta kernels. Widths count groups of four elements. C = 64 tokens per chunk.
// Scratch, in vec4 units, per slot (one chunk of one sequence) and head:
//   W^T [key_dim][64 tokens], U [64 tokens][value_dim], A^T [64][64 tokens], gates [36] per value head; q^T [key_dim][64 tokens],
//   k [64 tokens][key_dim] per key head. gates: 16 of output scales, 16 of key coefficients, one whose x is the decay of the chunk.
struct Params {
  key_heads: u32,
  value_heads: u32,
  heads_per_key: u32,
  key_width: u32,
  value_width: u32,
  first_sequence: u32,
  sequence_count: u32,
  token_begin: u32,   // this launch covers tokens [token_begin, token_begin + token_count) of each of its sequences
  token_count: u32,
  min_length: u32,    // sequences of other lengths belong to another kernel
  max_length: u32,
  slots: u32,
  qkv_offset: u32,    // in vec4 units in the vec4 builds
  qkv_stride: u32,
  b_offset: u32,
  b_stride: u32,
  a_offset: u32,
  a_stride: u32,
  out_offset: u32,
  out_stride: u32,
  w_base: u32,
  u_base: u32,
  a_matrix_base: u32,
  gate_base: u32,
  q_base: u32,
  k_base: u32,
  head_splits: u32,   // workgroups that share the value heads of one key head
  column_blocks: u32,
  workgroups: u32,
  key_split: u32,     // thread groups that share the tokens of a state update
  query_scale: f32,   // key_dim^-0.5
  unused: u32,
}
