#include "kernels/attend/attend_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr uint64_t kScratchBytes = 64ull << 20;  // of the blocks' sums
constexpr uint32_t kCombineThreads = 64;
constexpr uint32_t kSplitRows = 16;  // packed rows of a workgroup
constexpr uint32_t kTileRows = 64;
constexpr uint32_t kTileStorageBytes = 32768;
// A tile's workgroup takes its rows through all their keys: below so many workgroups, spread blocks of keys are faster (measured).
constexpr uint64_t kTileWorkgroups = 1024;
constexpr uint64_t kTileColumnTiles = 2;  // every one of them computes the scores

struct RowParams {
  uint32_t query_heads, kv_heads, group, key_dim, value_dim, packed_rows, first_position, key_count;
  uint32_t window, first_block, row_tiles, key_origin, q_offset, q_stride, k_offset, k_stride;
  uint32_t v_offset, v_stride, selected_offset, selected_words;
  float exponent_scale;
  uint32_t workgroups, out_offset, out_stride, column_tiles, has_sinks, padding0, padding1;
};
static_assert(sizeof(RowParams) == 112);

struct CombineParams {
  uint32_t query_heads, value_dim, rows, block_count, first_round, last_round, has_sinks, out_offset, out_stride;
  float exponent_scale;
  uint32_t workgroups, padding0;
};
static_assert(sizeof(CombineParams) == 48);

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
uint32_t group_of(const compute::AttendArgs& args) { return args.query_heads / args.kv_heads; }
uint64_t value_quads(const compute::AttendArgs& args) { return divide_up(args.value_dim, 4); }

bool whole_quads(const compute::AttendArgs& args) {
  return args.key_dim % 4 == 0 && args.value_dim % 4 == 0 && quad_aligned(args.q) && quad_aligned(args.keys) && quad_aligned(args.values) &&
         quad_aligned(args.out);
}

// Rows of the bitmask as a matrix of words.
compute::View selected_view(const compute::AttendArgs& args) {
  const auto words = static_cast<uint32_t>(divide_up(args.keys.rows, 32));
  return {args.selected, 0, args.q.rows, words, words};
}

// The blocks that some of the rows see.
struct BlockRange {
  uint32_t first = 0;
  uint32_t count = 0;
};
BlockRange blocks_of(const compute::AttendArgs& args, RowSlice rows) {
  const uint32_t first_position = args.keys.rows - args.q.rows + rows.first, last_position = first_position + rows.count - 1;
  const uint32_t lowest = args.window > 0 && first_position >= args.window ? first_position - args.window + 1 : 0;
  const uint32_t first = lowest / kAttendBlockKeys;
  return {first, last_position / kAttendBlockKeys + 1 - first};
}

RowSlice keys_of(const compute::AttendArgs& args, BlockRange blocks) {
  const uint64_t first = uint64_t{blocks.first} * kAttendBlockKeys;
  const uint64_t end = std::min<uint64_t>(first + uint64_t{blocks.count} * kAttendBlockKeys, args.keys.rows);
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)};
}

class Planner {
 public:
  Planner(const compute::AttendArgs& args, const gpu::Capabilities& capabilities) : args_(args), capabilities_(capabilities) {}

  // Whether the tile's dispatch can see all keys, and its output beside them.
  bool can_tile() const {
    if (!whole_quads(args_) || capabilities_.workgroup_storage_bytes_max < kTileStorageBytes) return false;
    for (const compute::View& view : {args_.keys, args_.values}) {
      if (window_bytes(view, view.rows) + capabilities_.storage_offset_alignment > capabilities_.storage_binding_bytes_max) return false;
      if (view.buffer == args_.out.buffer) return false;
    }
    return args_.q.buffer != args_.out.buffer && args_.sinks != args_.out.buffer && args_.selected != args_.out.buffer;
  }

  bool tile_pays() const { return column_tiles() <= kTileColumnTiles && tile_workgroups(args_.q.rows) >= kTileWorkgroups; }

  Result<AttendPlan> tile() {
    CHORUS_ASSIGN(const gpu::ShaderSource* shader, require_shader("attend_tile", args_.value_dim <= 64 ? "tile64" : "tile128"));
    CHORUS_ASSIGN(const std::vector<RowSlice> slices, slices_for_bindings());
    for (const RowSlice& rows : slices) {
      const BlockRange blocks = blocks_of(args_, rows);
      plan_.steps.push_back({AttendStepKind::tile, shader, rows, keys_of(args_, blocks), blocks.first, blocks.count, true, true,
                             tile_workgroups(rows.count)});
    }
    return std::move(plan_);
  }

  Result<AttendPlan> split(bool quads) {
    CHORUS_ASSIGN(const gpu::ShaderSource* shader, require_shader("attend_split", quads ? "split" : "base"));
    CHORUS_ASSIGN(const gpu::ShaderSource* combine, require_shader("attend_combine", quads ? "vec4" : "scalar"));
    CHORUS_ASSIGN(const uint32_t round_most, blocks_per_binding());
    CHORUS_ASSIGN(const std::vector<RowSlice> slices, slices_for_scratch());
    for (const RowSlice& rows : slices) {
      const BlockRange all = blocks_of(args_, rows);
      const uint64_t slots = uint64_t{rows.count} * args_.query_heads;
      const uint64_t fit = std::max<uint64_t>(1, scratch_bytes() / (slots * slot_bytes()));
      const auto round = static_cast<uint32_t>(std::min<uint64_t>({all.count, round_most, fit}));
      plan_.block_slots = std::max(plan_.block_slots, slots * round);
      if (round < all.count) plan_.gathered_slots = std::max(plan_.gathered_slots, slots);
      for (uint32_t block = 0; block < all.count; block += round) {
        add_round({AttendStepKind::split,
                   shader,
                   rows,
                   {},
                   all.first + block,
                   std::min(round, all.count - block),
                   block == 0,
                   block + round >= all.count,
                   0},
                  combine);
      }
    }
    return std::move(plan_);
  }

 private:
  uint64_t column_tiles() const { return divide_up(args_.value_dim, args_.value_dim <= 64 ? 64 : 128); }
  uint64_t tile_workgroups(uint32_t rows) const {
    return divide_up(uint64_t{rows} * group_of(args_), kTileRows) * column_tiles() * args_.kv_heads;
  }
  Result<std::vector<RowSlice>> slices_for_bindings() const {
    const compute::View selected = args_.selected ? selected_view(args_) : args_.q;
    return slice_rows(args_.q.rows, {args_.q, args_.out, selected}, "attend", capabilities_);
  }
  uint64_t slot_bytes() const { return value_quads(args_) * 16 + 8; }
  uint64_t scratch_bytes() const { return std::min(kScratchBytes, capabilities_.storage_binding_bytes_max); }

  // Blocks whose keys and values fit one binding each.
  Result<uint32_t> blocks_per_binding() const {
    uint32_t most = UINT32_MAX;
    for (const compute::View& view : {args_.keys, args_.values}) {
      if (window_bytes(view, view.rows) + capabilities_.storage_offset_alignment <= capabilities_.storage_binding_bytes_max) continue;
      most = std::min(most, rows_per_window(view, capabilities_) / kAttendBlockKeys);
    }
    if (most > 0) return most;
    return make_error(ErrorCode::limit_exceeded, "attend: expected 64 keys to fit one binding of " +
                                                     std::to_string(capabilities_.storage_binding_bytes_max) + " bytes, found longer rows");
  }

  // Slices of rows: all blocks of a slice fit the scratch at once where one row's do.
  Result<std::vector<RowSlice>> slices_for_scratch() const {
    const uint64_t row_bytes = args_.query_heads * slot_bytes();
    if (row_bytes > capabilities_.storage_binding_bytes_max) {
      return make_error(ErrorCode::limit_exceeded, "attend: expected the sums of one row to fit one binding of " +
                                                       std::to_string(capabilities_.storage_binding_bytes_max) + " bytes, found " +
                                                       std::to_string(row_bytes));
    }
    const uint64_t blocks = blocks_of(args_, {0, args_.q.rows}).count;
    const uint64_t most = std::clamp<uint64_t>(scratch_bytes() / (row_bytes * blocks), 1, args_.q.rows);
    CHORUS_ASSIGN(const std::vector<RowSlice> slices, slices_for_bindings());
    std::vector<RowSlice> result;
    for (const RowSlice& slice : slices) {
      for (uint32_t first = 0; first < slice.count; first += static_cast<uint32_t>(most)) {
        result.push_back({slice.first + first, static_cast<uint32_t>(std::min<uint64_t>(most, slice.count - first))});
      }
    }
    return result;
  }

  void add_round(AttendStep step, const gpu::ShaderSource* combine) {
    step.keys = keys_of(args_, {step.first_block, step.block_count});
    const uint64_t tiles = divide_up(uint64_t{step.rows.count} * group_of(args_), kSplitRows);
    step.workgroups = tiles * args_.kv_heads * step.block_count;
    plan_.steps.push_back(step);
    step.kind = AttendStepKind::combine;
    step.shader = combine;
    step.workgroups = divide_up(uint64_t{step.rows.count} * args_.query_heads * value_quads(args_), kCombineThreads);
    plan_.steps.push_back(step);
  }

  const compute::AttendArgs& args_;
  const gpu::Capabilities& capabilities_;
  AttendPlan plan_;
};

struct Scratch {
  gpu::Binding sums, stats, gathered_sums, gathered_stats;
};

Result<gpu::Binding> acquire(WebgpuContext& context, std::string_view slot, uint64_t bytes) {
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> storage, context.scratch.acquire(slot, std::max<uint64_t>(bytes, 16)));
  return gpu::Binding{std::move(storage), gpu::Access::read_write, 0, 0};
}

Result<Scratch> acquire_scratch(WebgpuContext& context, const AttendPlan& plan, uint64_t quads) {
  Scratch scratch;
  CHORUS_ASSIGN(scratch.sums, acquire(context, "attend sums", plan.block_slots * quads * 16));
  CHORUS_ASSIGN(scratch.stats, acquire(context, "attend weights", plan.block_slots * 8));
  CHORUS_ASSIGN(scratch.gathered_sums, acquire(context, "attend gathered sums", plan.gathered_slots * quads * 16));
  CHORUS_ASSIGN(scratch.gathered_stats, acquire(context, "attend gathered weights", plan.gathered_slots * quads * 8));
  return scratch;
}

float exponent_scale(const compute::AttendArgs& args) { return static_cast<float>(static_cast<double>(args.scale) * 1.4426950408889634); }

gpu::Binding readable(gpu::Binding binding) {
  binding.access = gpu::Access::read;
  return binding;
}

// What split and tile have in common: the four inputs and most parameters.
struct RowDispatch {
  std::vector<gpu::Binding> bindings;
  RowParams params{};
};

RowDispatch prepare_rows(WebgpuContext& context, const compute::AttendArgs& args, const AttendStep& step, uint32_t tile_rows) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow q = bind_rows(args.q, step.rows, gpu::Access::read, capabilities);
  const RowWindow k = bind_rows(args.keys, step.keys, gpu::Access::read, capabilities);
  const RowWindow v = bind_rows(args.values, step.keys, gpu::Access::read, capabilities);
  const RowWindow selected = args.selected ? bind_rows(selected_view(args), step.rows, gpu::Access::read, capabilities) : q;
  RowDispatch prepared;
  prepared.bindings = {q.binding, k.binding, v.binding, selected.binding};
  RowParams& params = prepared.params;
  params.query_heads = args.query_heads;
  params.kv_heads = args.kv_heads;
  params.group = group_of(args);
  params.key_dim = args.key_dim;
  params.value_dim = args.value_dim;
  params.packed_rows = step.rows.count * params.group;
  params.first_position = args.keys.rows - args.q.rows + step.rows.first;
  params.key_count = args.keys.rows;
  params.window = args.window;
  params.first_block = step.first_block;
  params.row_tiles = static_cast<uint32_t>(divide_up(params.packed_rows, tile_rows));
  params.key_origin = step.keys.first;
  params.q_offset = q.offset;
  params.q_stride = args.q.stride;
  params.k_offset = k.offset;
  params.k_stride = args.keys.stride;
  params.v_offset = v.offset;
  params.v_stride = args.values.stride;
  params.selected_offset = args.selected ? selected.offset : 0;
  params.selected_words = args.selected ? selected_view(args).cols : 0;
  params.exponent_scale = exponent_scale(args);
  params.workgroups = static_cast<uint32_t>(step.workgroups);
  return prepared;
}

Status record_split(WebgpuContext& context, const compute::AttendArgs& args, const AttendStep& step, const Scratch& scratch) {
  RowDispatch prepared = prepare_rows(context, args, step, kSplitRows);
  prepared.bindings.insert(prepared.bindings.end(), {scratch.sums, scratch.stats});
  return context.device.dispatch({step.shader, std::move(prepared.bindings), as_params(prepared.params),
                                  gpu::fold_grid(step.workgroups, context.device.capabilities().workgroups_per_dimension_max)});
}

Status record_tile(WebgpuContext& context, const compute::AttendArgs& args, const AttendStep& step) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  RowDispatch prepared = prepare_rows(context, args, step, kTileRows);
  const RowWindow out = bind_rows(args.out, step.rows, gpu::Access::read_write, capabilities);
  gpu::Binding sinks = prepared.bindings.front();  // not read without sinks
  if (args.sinks) {
    CHORUS_ASSIGN(sinks, bind_buffer(args.sinks, gpu::Access::read, capabilities));
  }
  prepared.bindings.insert(prepared.bindings.end(), {sinks, out.binding});
  prepared.params.out_offset = out.offset;
  prepared.params.out_stride = args.out.stride;
  prepared.params.column_tiles = static_cast<uint32_t>(step.workgroups / (uint64_t{prepared.params.row_tiles} * args.kv_heads));
  prepared.params.has_sinks = args.sinks ? 1 : 0;
  return context.device.dispatch({step.shader, std::move(prepared.bindings), as_params(prepared.params),
                                  gpu::fold_grid(step.workgroups, capabilities.workgroups_per_dimension_max)});
}

Status record_combine(WebgpuContext& context, const compute::AttendArgs& args, const AttendStep& step, const Scratch& scratch) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow out = bind_rows(args.out, step.rows, gpu::Access::read_write, capabilities);
  gpu::Binding sinks = readable(scratch.stats);  // not read without sinks
  if (args.sinks) {
    CHORUS_ASSIGN(sinks, bind_buffer(args.sinks, gpu::Access::read, capabilities));
  }
  const CombineParams params{args.query_heads,
                             args.value_dim,
                             step.rows.count,
                             step.block_count,
                             step.first_round ? 1u : 0u,
                             step.last_round ? 1u : 0u,
                             args.sinks ? 1u : 0u,
                             out.offset,
                             args.out.stride,
                             exponent_scale(args),
                             static_cast<uint32_t>(step.workgroups),
                             0};
  return context.device.dispatch(
      {step.shader,
       {readable(scratch.sums), readable(scratch.stats), sinks, scratch.gathered_sums, scratch.gathered_stats, out.binding},
       as_params(params),
       gpu::fold_grid(step.workgroups, capabilities.workgroups_per_dimension_max)});
}

}  // namespace

std::vector<std::string> attend_variants(const gpu::Capabilities& capabilities) {
  std::vector<std::string> names{"base", "split"};
  if (capabilities.workgroup_storage_bytes_max >= kTileStorageBytes) names.push_back("tile");
  return names;
}

Result<AttendPlan> plan_attend(const compute::AttendArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  Planner planner(args, capabilities);
  const bool quads = whole_quads(args);
  // A software adapter gains nothing from wide loads and tiles: fewer variants to compile.
  std::string_view chosen = "base";
  if (quads && !capabilities.software) chosen = planner.can_tile() && planner.tile_pays() ? "tile" : "split";
  const Result<std::string> variant = pick_variant("attend", forced, chosen, capabilities, attend_variants);
  if (!variant.ok()) return variant.error();
  if ((!quads && *variant != "base") || (*variant == "tile" && !planner.can_tile())) {
    return make_error(ErrorCode::unsupported,
                      "attend: variant " + *variant + " needs rows and heads that start at multiples of four elements" +
                          (*variant == "tile" ? ", keys that fit one binding and an output in a buffer of its own" : ""));
  }
  if (args.q.rows == 0) return AttendPlan{};
  return *variant == "tile" ? planner.tile() : planner.split(*variant != "base");
}

Status record_attend(WebgpuContext& context, const compute::AttendArgs& args) {
  CHORUS_ASSIGN(const AttendPlan plan, plan_attend(args, context.device.capabilities(), context.forced_variant("attend")));
  if (plan.steps.empty()) return {};
  Scratch scratch;
  if (plan.block_slots > 0) {
    CHORUS_ASSIGN(scratch, acquire_scratch(context, plan, value_quads(args)));
  }
  for (const AttendStep& step : plan.steps) {
    switch (step.kind) {
      case AttendStepKind::split:
        CHORUS_TRY(record_split(context, args, step, scratch));
        break;
      case AttendStepKind::combine:
        CHORUS_TRY(record_combine(context, args, step, scratch));
        break;
      case AttendStepKind::tile:
        CHORUS_TRY(record_tile(context, args, step));
        break;
    }
  }
  return {};
}

}  // namespace chorus::kernels
