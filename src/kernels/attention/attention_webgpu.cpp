#include "kernels/attention/attention_webgpu.h"

#include <cmath>

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t query_heads, kv_heads, group, head_dim, first_row, end_row, causal, key_end;
  uint32_t q_offset, q_stride, k_offset, k_stride, v_offset, v_stride, key_origin, part_keys;
  uint32_t first_part, part_count, first_sequence, sequence_count, first_block, block_count, min_length, max_length;
  float exponent_scale;
  uint32_t workgroups, gate_offset, gate_stride, out_offset, out_stride, padding[2];
};
static_assert(sizeof(Params) == 128);

struct MergeParams {
  uint32_t query_heads, head_dim, first_row, end_row, prefix_parts, sequence_count, min_length, count;
  uint32_t gate_offset, gate_stride, out_offset, out_stride;
  float exponent_scale;
  uint32_t workgroups, padding[2];
};
static_assert(sizeof(MergeParams) == 64);

constexpr uint32_t kHeadDimMax = 256;
constexpr uint32_t kSinglePartKeys = 256;           // own sequences up to here have one part
constexpr uint64_t kScratchBytesMax = 16ull << 20;  // of the partial sums of one slice, for prefix and own parts each
constexpr uint32_t kMergeThreads = 256;

struct Tile {
  const char* kernel;
  const char* name;
  uint32_t rows;  // packed rows
  uint32_t invocations;
  uint32_t workgroup_bytes;
};
// Largest first. All give the same bits, so the choice may follow the size of the batch.
constexpr Tile kTiles[] = {{"attention", "tile32", 32, 128, 14336}, {"attention_small", "tile16", 16, 256, 15424}};
constexpr Tile kBase = {"attention_small", "base", 16, 256, 15424};

bool can_run(const Tile& tile, const gpu::Capabilities& capabilities) {
  return tile.invocations <= capabilities.workgroup_invocations_max && tile.invocations <= capabilities.workgroup_size_x_max &&
         tile.workgroup_bytes <= capabilities.workgroup_storage_bytes_max;
}

uint32_t rounded_eighth(uint32_t keys) { return (keys / 8 + 63) / 64 * 64; }
uint64_t divide_up(uint64_t count, uint64_t size) { return (count + size - 1) / size; }

bool can_use_quads(const compute::AttentionArgs& args) {
  const bool prefix = args.prefix_k.rows == 0 || (quad_aligned(args.prefix_k) && quad_aligned(args.prefix_v));
  return prefix && quad_aligned(args.q) && quad_aligned(args.q_gate) && quad_aligned(args.own_k) && quad_aligned(args.own_v) &&
         quad_aligned(args.out);
}

Status check_shape(const compute::AttentionArgs& args) {
  if (args.shape.head_dim % 4 != 0 || args.shape.head_dim > kHeadDimMax) {
    return make_error(ErrorCode::unsupported,
                      "attention: expected a head dim that is a multiple of 4 up to 256, found " + std::to_string(args.shape.head_dim));
  }
  return require_other_buffer(
      "attention", args.out,
      {args.q.buffer, args.q_gate.buffer, args.own_k.buffer, args.own_v.buffer, args.prefix_k.rows > 0 ? args.prefix_k.buffer : nullptr,
       args.prefix_v.rows > 0 ? args.prefix_v.buffer : nullptr});
}

// Builds the steps of a plan, slice by slice.
class Planner {
 public:
  Planner(const compute::AttentionArgs& args, const gpu::Capabilities& capabilities, std::string variant)
      : args_(args), capabilities_(capabilities), variant_(std::move(variant)) {}

  Result<AttentionPlan> plan() {
    CHORUS_TRY(check_shape(args_));
    if (!can_use_quads(args_)) {
      if (!variant_.empty() && variant_ != kBase.name) {
        return make_error(ErrorCode::unsupported,
                          "attention: variant " + variant_ + " needs rows that start at multiples of four elements");
      }
      variant_ = kBase.name;
    }
    if (args_.q.rows == 0) return std::move(plan_);
    measure_parts();
    CHORUS_ASSIGN(const std::vector<RowSlice> slices, slices_of_rows());
    for (const RowSlice& slice : slices) CHORUS_TRY(add_slice(slice));
    plan_.slice_rows = slices.front().count;
    const uint64_t slots = static_cast<uint64_t>(plan_.slice_rows) * args_.shape.query_heads;
    plan_.prefix_slots = slots * plan_.prefix_parts;
    plan_.own_slots = needs_merge_ ? slots * plan_.own_parts : 0;
    return std::move(plan_);
  }

 private:
  void measure_parts() {
    const uint32_t prefix = args_.prefix_k.rows;
    part_keys_ = prefix_part_keys(prefix);
    plan_.prefix_parts = static_cast<uint32_t>(divide_up(prefix, part_keys_));
    for (const compute::SequenceSpan& span : args_.sequences->spans) {
      longest_ = std::max(longest_, span.length);
      plan_.own_parts = std::max(plan_.own_parts, static_cast<uint32_t>(divide_up(span.length, own_part_keys(span.length))));
    }
    needs_merge_ = prefix > 0 || longest_ > kSinglePartKeys;
  }

  // Slices such that the scratch of a slice stays within its budget and every row window within a binding.
  Result<std::vector<RowSlice>> slices_of_rows() const {
    CHORUS_ASSIGN(std::vector<RowSlice> slices, slice_rows(args_.q.rows, {args_.q, args_.q_gate, args_.out}, "attention", capabilities_));
    const uint64_t row_bytes = static_cast<uint64_t>(args_.shape.query_heads) * args_.shape.head_dim * 4;
    const uint64_t budget = std::min(kScratchBytesMax, capabilities_.storage_binding_bytes_max);
    const uint32_t parts = needs_merge_ ? std::max(plan_.prefix_parts, plan_.own_parts) : 1;
    const uint64_t most = std::min<uint64_t>(slices.front().count, needs_merge_ ? budget / (row_bytes * parts) : UINT32_MAX);
    if (most == 0) {
      return make_error(ErrorCode::limit_exceeded, "attention: the " + std::to_string(parts) + " partial sums of one row need " +
                                                       std::to_string(row_bytes * parts) + " bytes, the scratch holds " +
                                                       std::to_string(budget));
    }
    slices.clear();
    for (uint64_t first = 0; first < args_.q.rows; first += most) {
      slices.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(std::min<uint64_t>(most, args_.q.rows - first))});
    }
    return slices;
  }

  Status add_slice(const RowSlice& slice) {
    if (plan_.prefix_parts > 0) CHORUS_TRY(add_prefix(slice));
    AttentionStep step;
    step.rows = slice;
    if (plan_.prefix_parts > 0) {
      step.kind = AttentionStepKind::own;
      CHORUS_TRY(add_own(step));
    } else {
      step.kind = AttentionStepKind::direct;
      step.max_length = kSinglePartKeys;
      CHORUS_TRY(add_own(step));
      step.kind = AttentionStepKind::own;
      step.min_length = kSinglePartKeys + 1;
      step.max_length = UINT32_MAX;
      CHORUS_TRY(add_own(step));
    }
    return needs_merge_ ? add_merge(step) : Status{};
  }

  Status add_prefix(const RowSlice& slice) {
    const uint32_t keys = args_.prefix_k.rows;
    CHORUS_ASSIGN(const uint32_t group, parts_per_binding(args_.prefix_k, args_.prefix_v, keys, part_keys_));
    for (uint32_t part = 0; part < plan_.prefix_parts; part += group) {
      AttentionStep step;
      step.kind = AttentionStepKind::prefix;
      step.rows = slice;
      step.first_part = part;
      step.part_count = std::min(group, plan_.prefix_parts - part);
      const uint32_t first_key = part * part_keys_;
      step.key_rows = {first_key, static_cast<uint32_t>(std::min<uint64_t>(uint64_t{step.part_count} * part_keys_, keys - first_key))};
      step.sequence_count = 1;
      const uint64_t packed = static_cast<uint64_t>(slice.count) * group_size();
      CHORUS_TRY(add_blocks(step, 0, packed, packed));
    }
    return {};
  }

  // How many parts one binding of keys and of values holds.
  Result<uint32_t> parts_per_binding(const compute::View& k, const compute::View& v, uint32_t keys, uint32_t part_keys) const {
    const uint32_t parts = static_cast<uint32_t>(divide_up(keys, part_keys));
    if (fits_binding(k, keys) && fits_binding(v, keys)) return parts;
    const uint32_t fit = std::min(rows_per_window(k, capabilities_), rows_per_window(v, capabilities_)) / part_keys;
    if (fit > 0) return std::min(fit, parts);
    return make_error(ErrorCode::limit_exceeded, "attention: " + std::to_string(part_keys) + " keys do not fit a storage binding of " +
                                                     std::to_string(capabilities_.storage_binding_bytes_max) + " bytes");
  }
  bool fits_binding(const compute::View& view, uint32_t rows) const {
    return window_bytes(view, rows) + capabilities_.storage_offset_alignment <= capabilities_.storage_binding_bytes_max;
  }

  // Own keys of the sequences that meet the slice and whose length lies in the step's bounds.
  Status add_own(AttentionStep step) {
    const std::vector<compute::SequenceSpan>& spans = args_.sequences->spans;
    const uint32_t end_row = step.rows.first + step.rows.count;
    size_t first = spans.size(), last = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
      const bool meets = spans[i].length > 0 && spans[i].start < end_row && spans[i].start + spans[i].length > step.rows.first;
      if (!meets || spans[i].length < step.min_length || spans[i].length > step.max_length) continue;
      first = std::min(first, i);
      last = i + 1;
    }
    if (first >= last) return {};
    const RowSlice keys{spans[first].start, std::min(end_row, spans[last - 1].start + spans[last - 1].length) - spans[first].start};
    if (fits_binding(args_.own_k, keys.count) && fits_binding(args_.own_v, keys.count)) {
      return add_sequences(step, static_cast<uint32_t>(first), static_cast<uint32_t>(last), keys);
    }
    for (size_t i = first; i < last; ++i) CHORUS_TRY(add_windowed_sequence(step, static_cast<uint32_t>(i)));
    return {};
  }

  // One sequence, as many parts at a time as one binding holds.
  Status add_windowed_sequence(AttentionStep step, uint32_t sequence) {
    const compute::SequenceSpan& span = args_.sequences->spans[sequence];
    if (span.length < std::max(step.min_length, 1u) || span.length > step.max_length) return {};
    const uint32_t part_keys = own_part_keys(span.length);
    const uint32_t keys = std::min(span.length, step.rows.first + step.rows.count - span.start);
    CHORUS_ASSIGN(const uint32_t group, parts_per_binding(args_.own_k, args_.own_v, keys, part_keys));
    const uint32_t parts = static_cast<uint32_t>(divide_up(keys, part_keys));
    for (uint32_t part = 0; part < parts; part += group) {
      step.first_part = part;
      step.part_count = std::min(group, parts - part);
      const uint32_t first_key = part * part_keys;
      const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{step.part_count} * part_keys, keys - first_key));
      CHORUS_TRY(add_sequences(step, sequence, sequence + 1, {span.start + first_key, count}));
    }
    return {};
  }

  // Sequences [first, last) in one dispatch; a step that names parts keeps them, else all parts run.
  Status add_sequences(AttentionStep step, uint32_t first, uint32_t last, RowSlice keys) {
    const std::vector<compute::SequenceSpan>& spans = args_.sequences->spans;
    step.key_rows = keys;
    step.first_sequence = first;
    step.sequence_count = last - first;
    const bool all_parts = step.first_part == 0 && step.part_count == 1;
    uint64_t longest = 0;
    for (uint32_t i = first; i < last; ++i) {
      const uint32_t length = spans[i].length;
      if (length < step.min_length || length > step.max_length || length == 0) continue;
      longest = std::max<uint64_t>(longest, length);
      if (all_parts) step.part_count = std::max(step.part_count, parts_in_window(spans[i], keys));
    }
    uint64_t lowest = 0;
    if (step.sequence_count == 1) {  // only the blocks that meet the slice
      const compute::SequenceSpan& span = spans[first];
      lowest = std::max(step.rows.first, span.start) - span.start;
      longest = std::min(step.rows.first + step.rows.count, span.start + span.length) - span.start;
    }
    const uint64_t all = uint64_t{spans[first].length} * group_size();
    return add_blocks(step, lowest * group_size(), longest * group_size(), step.sequence_count == 1 ? all : longest * group_size());
  }

  uint32_t parts_in_window(const compute::SequenceSpan& span, RowSlice keys) const {
    const uint32_t seen = std::min(span.length, keys.first + keys.count - span.start);
    return static_cast<uint32_t>(divide_up(seen, own_part_keys(span.length)));
  }

  // Packed rows [lowest, highest) of `all`, per sequence of the step.
  Status add_blocks(AttentionStep step, uint64_t lowest, uint64_t highest, uint64_t all) {
    const Tile& tile = tile_for(all);
    const bool direct = step.kind == AttentionStepKind::direct;
    CHORUS_ASSIGN(step.shader, require_shader(tile.kernel, std::string(tile.name) + (direct ? "_direct" : "_part")));
    step.first_block = static_cast<uint32_t>(lowest / tile.rows);
    step.block_count = static_cast<uint32_t>(divide_up(highest, tile.rows) - step.first_block);
    step.workgroups = uint64_t{args_.shape.kv_heads} * step.part_count * step.block_count * step.sequence_count;
    if (step.workgroups > UINT32_MAX) {
      return make_error(ErrorCode::limit_exceeded, "attention: one dispatch would need " + std::to_string(step.workgroups) + " workgroups");
    }
    plan_.steps.push_back(step);
    return {};
  }

  // The smallest tile that holds all packed rows in one block, or the largest that the adapter runs. Software adapters gain nothing from
  // register tiles, and take long to compile them.
  const Tile& tile_for(uint64_t packed) const {
    if (variant_ == kBase.name) return kBase;
    const Tile* chosen = nullptr;
    for (const Tile& tile : kTiles) {
      if (!can_run(tile, capabilities_)) continue;
      if (variant_ == tile.name) return tile;
      if (chosen == nullptr || packed <= tile.rows || capabilities_.software) chosen = &tile;
    }
    return chosen ? *chosen : kBase;
  }

  Status add_merge(AttentionStep step) {
    step.kind = AttentionStepKind::merge;
    CHORUS_ASSIGN(step.shader, require_shader("attention_merge", variant_ == kBase.name ? "scalar" : "vec4"));
    step.min_length = plan_.prefix_parts > 0 ? 0 : kSinglePartKeys + 1;
    step.sequence_count = static_cast<uint32_t>(args_.sequences->spans.size());
    step.workgroups = divide_up(uint64_t{step.rows.count} * args_.shape.query_heads * (args_.shape.head_dim / 4), kMergeThreads);
    plan_.steps.push_back(step);
    return {};
  }

  uint32_t group_size() const { return args_.shape.query_heads / args_.shape.kv_heads; }

  const compute::AttentionArgs& args_;
  const gpu::Capabilities& capabilities_;
  std::string variant_;
  AttentionPlan plan_;
  uint32_t part_keys_ = 0, longest_ = 0;
  bool needs_merge_ = false;
};

struct Scratch {
  gpu::Binding prefix_partial, prefix_stats, own_partial, own_stats;
};

Result<gpu::Binding> acquire(WebgpuContext& context, std::string_view slot, uint64_t bytes) {
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> storage, context.scratch.acquire(slot, std::max<uint64_t>(bytes, 16)));
  return gpu::Binding{std::move(storage), gpu::Access::read_write, 0, 0};
}

Result<Scratch> acquire_scratch(WebgpuContext& context, const AttentionPlan& plan, uint32_t head_dim) {
  Scratch scratch;
  CHORUS_ASSIGN(scratch.prefix_partial, acquire(context, "attention prefix sums", plan.prefix_slots * head_dim * 4));
  CHORUS_ASSIGN(scratch.prefix_stats, acquire(context, "attention prefix weights", plan.prefix_slots * 8));
  CHORUS_ASSIGN(scratch.own_partial, acquire(context, "attention own sums", plan.own_slots * head_dim * 4));
  CHORUS_ASSIGN(scratch.own_stats, acquire(context, "attention own weights", plan.own_slots * 8));
  return scratch;
}

float exponent_scale(const compute::AttentionArgs& args) {
  return static_cast<float>(static_cast<double>(args.scale) * 1.4426950408889634);
}

Status record_tiles(WebgpuContext& context, const compute::AttentionArgs& args, const AttentionPlan&, const AttentionStep& step,
                    const Scratch& scratch) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const bool prefix = step.kind == AttentionStepKind::prefix;
  const RowWindow q = bind_rows(args.q, step.rows, gpu::Access::read, capabilities);
  const RowWindow k = bind_rows(prefix ? args.prefix_k : args.own_k, step.key_rows, gpu::Access::read, capabilities);
  const RowWindow v = bind_rows(prefix ? args.prefix_v : args.own_v, step.key_rows, gpu::Access::read, capabilities);
  Params params{};
  params.query_heads = args.shape.query_heads;
  params.kv_heads = args.shape.kv_heads;
  params.group = args.shape.query_heads / args.shape.kv_heads;
  params.head_dim = args.shape.head_dim;
  params.first_row = step.rows.first;
  params.end_row = step.rows.first + step.rows.count;
  params.causal = prefix ? 0 : 1;
  params.key_end = prefix ? args.prefix_k.rows : 0;
  params.q_offset = q.offset;
  params.q_stride = args.q.stride;
  params.k_offset = k.offset;
  params.k_stride = prefix ? args.prefix_k.stride : args.own_k.stride;
  params.v_offset = v.offset;
  params.v_stride = prefix ? args.prefix_v.stride : args.own_v.stride;
  params.key_origin = step.key_rows.first;
  params.part_keys = prefix ? prefix_part_keys(args.prefix_k.rows) : 0;
  params.first_part = step.first_part;
  params.part_count = step.part_count;
  params.first_sequence = step.first_sequence;
  params.sequence_count = step.sequence_count;
  params.first_block = step.first_block;
  params.block_count = step.block_count;
  params.min_length = step.min_length;
  params.max_length = step.max_length;
  params.exponent_scale = exponent_scale(args);
  params.workgroups = static_cast<uint32_t>(step.workgroups);
  std::vector<gpu::Binding> bindings{q.binding, k.binding, v.binding, {storage_of(args.sequences->device), gpu::Access::read, 0, 0}};
  if (step.kind == AttentionStepKind::direct) {
    const RowWindow gate = bind_rows(args.q_gate, step.rows, gpu::Access::read, capabilities);
    const RowWindow out = bind_rows(args.out, step.rows, gpu::Access::read_write, capabilities);
    params.gate_offset = gate.offset;
    params.gate_stride = args.q_gate.stride;
    params.out_offset = out.offset;
    params.out_stride = args.out.stride;
    bindings.insert(bindings.end(), {gate.binding, out.binding});
  } else if (prefix) {
    bindings.insert(bindings.end(), {scratch.prefix_partial, scratch.prefix_stats});
  } else {
    bindings.insert(bindings.end(), {scratch.own_partial, scratch.own_stats});
  }
  return context.device.dispatch(
      {step.shader, std::move(bindings), as_params(params), gpu::fold_grid(step.workgroups, capabilities.workgroups_per_dimension_max)});
}

gpu::Binding readable(gpu::Binding binding) {
  binding.access = gpu::Access::read;
  return binding;
}

Status record_merge(WebgpuContext& context, const compute::AttentionArgs& args, const AttentionPlan& plan, const AttentionStep& step,
                    const Scratch& scratch) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow gate = bind_rows(args.q_gate, step.rows, gpu::Access::read, capabilities);
  const RowWindow out = bind_rows(args.out, step.rows, gpu::Access::read_write, capabilities);
  MergeParams params{};
  params.query_heads = args.shape.query_heads;
  params.head_dim = args.shape.head_dim;
  params.first_row = step.rows.first;
  params.end_row = step.rows.first + step.rows.count;
  params.prefix_parts = plan.prefix_parts;
  params.sequence_count = step.sequence_count;
  params.min_length = step.min_length;
  params.count = step.rows.count * args.shape.query_heads * (args.shape.head_dim / 4);
  params.gate_offset = gate.offset;
  params.gate_stride = args.q_gate.stride;
  params.out_offset = out.offset;
  params.out_stride = args.out.stride;
  params.exponent_scale = exponent_scale(args);
  params.workgroups = static_cast<uint32_t>(step.workgroups);
  return context.device.dispatch({step.shader,
                                  {{storage_of(args.sequences->device), gpu::Access::read, 0, 0},
                                   readable(scratch.prefix_partial),
                                   readable(scratch.prefix_stats),
                                   readable(scratch.own_partial),
                                   readable(scratch.own_stats),
                                   gate.binding,
                                   out.binding},
                                  as_params(params),
                                  gpu::fold_grid(step.workgroups, capabilities.workgroups_per_dimension_max)});
}

}  // namespace

uint32_t prefix_part_keys(uint32_t prefix_rows) { return std::clamp(rounded_eighth(prefix_rows), 256u, 2048u); }
uint32_t own_part_keys(uint32_t length) { return std::clamp(rounded_eighth(length), kSinglePartKeys, 2048u); }

std::vector<std::string> attention_variants(const gpu::Capabilities& capabilities) {
  std::vector<std::string> names{kBase.name};
  for (const Tile& tile : kTiles) {
    if (can_run(tile, capabilities)) names.push_back(tile.name);
  }
  return names;
}

Result<AttentionPlan> plan_attention(const compute::AttentionArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  CHORUS_ASSIGN(std::string variant, pick_variant("attention", forced, "", capabilities, attention_variants));
  return Planner(args, capabilities, std::move(variant)).plan();
}

Status record_attention(WebgpuContext& context, const compute::AttentionArgs& args) {
  CHORUS_ASSIGN(const AttentionPlan plan, plan_attention(args, context.device.capabilities(), context.forced_variant("attention")));
  if (plan.steps.empty()) return {};
  CHORUS_ASSIGN(const Scratch scratch, acquire_scratch(context, plan, args.shape.head_dim));
  for (const AttentionStep& step : plan.steps) {
    CHORUS_TRY(step.kind == AttentionStepKind::merge ? record_merge(context, args, plan, step, scratch)
                                                     : record_tiles(context, args, plan, step, scratch));
  }
  return {};
}

}  // namespace chorus::kernels
