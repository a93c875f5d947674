// The parameters of every expert_ffn kernel; the host writes them (ExpertFfnParams in expert_ffn_webgpu.h).
struct Params {
  routes: u32,
  top_k: u32,
  hidden: u32,
  inner: u32,
  x_offset: u32,  // elements
  x_stride: u32,
  out_offset: u32,
  out_stride: u32,
  middle_stride: u32,  // inner, filled up with zeros to whole eights
  route_first: u32,    // of the slice, in `slots`
  slot_first: u32,     // of the bank's buffer
  slot_count: u32,
  record_quads: u32,    // quads: 16 bytes of a record
  gate_up_quads: u32,   // of one row
  down_quads: u32,      // of one row
  down_offset: u32,     // quads from the start of a record
  gate_up_bias: u32,
  down_bias: u32,
  flags: u32,
  alpha: f32,
  limit: f32,
  workgroups: u32,
  row_groups: u32,  // workgroups a route, or a tile of routes, takes
  group_rows: u32,  // pairs of weight rows a workgroup of the row kernel makes
  counts_at: u32,   // where things stand in the table of sorted routes
  routes_at: u32,
  tile_routes: u32,
  tile_quads: u32,  // 8, of the columns in one step of a tile: known only here, or software adapters unroll the step, which takes seconds
}

const flag_bias: u32 = 1;
const flag_clamped: u32 = 2;

@group(0) @binding(0) var<uniform> params: Params;
