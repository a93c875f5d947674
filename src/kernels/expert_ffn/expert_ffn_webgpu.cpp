#include "kernels/expert_ffn/expert_ffn_webgpu.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace chorus::kernels {
namespace {

constexpr std::string_view kRow = "row";
constexpr std::string_view kRowSubgroup = "row_subgroup";
// Tiles of many and of fewer routes; both give the same bits.
constexpr std::string_view kTile32 = "tile32";
constexpr std::string_view kTile8 = "tile8";
constexpr uint32_t kRowVariantRowsMax = 8;  // the order of a row's sums is the same up to here
constexpr uint32_t kSubgroupThreads = 256;
constexpr uint32_t kRowPairs = 4;  // of a workgroup that has no subgroups
constexpr uint32_t kTile8RowsMax = 96;
constexpr uint32_t kTilePairs = 32;
constexpr uint64_t kMiddleBytesMax = uint64_t{64} << 20;
constexpr uint32_t kQuadBytes = 16;

uint32_t divide_up(uint32_t value, uint32_t by) { return value / by + (value % by != 0 ? 1 : 0); }

// The row kernel needs to know how many subgroups a workgroup has.
bool has_fixed_subgroups(const gpu::Capabilities& capabilities) {
  const uint32_t size = capabilities.subgroup_size_min;
  return capabilities.subgroups && size == capabilities.subgroup_size_max && size > 0 && size <= kSubgroupThreads &&
         kSubgroupThreads % size == 0;
}

// Routes of a tile; 0 in the row variants.
uint32_t tile_routes_of(std::string_view variant) { return variant == kTile32 ? 32 : variant == kTile8 ? 8 : 0; }

std::string_view variant_for(uint32_t rows, const gpu::Capabilities& capabilities) {
  if (rows > kRowVariantRowsMax) return rows > kTile8RowsMax ? kTile32 : kTile8;
  return has_fixed_subgroups(capabilities) ? kRowSubgroup : kRow;
}

uint32_t pairs_per_workgroup(std::string_view variant, const gpu::Capabilities& capabilities) {
  return variant == kRowSubgroup ? kSubgroupThreads / capabilities.subgroup_size_min : kRowPairs;
}

// All routes of a row of x as one long row.
Result<compute::View> routes_of_rows(const compute::ExpertFfnArgs& args) {
  const uint64_t stride = uint64_t{args.out.stride} * args.top_k;
  if (stride > std::numeric_limits<uint32_t>::max()) {
    return make_error(ErrorCode::limit_exceeded,
                      "expert_ffn: expected the routes of a row within 2^32 elements, found " + std::to_string(stride));
  }
  const uint32_t cols = static_cast<uint32_t>(stride - args.out.stride + args.out.cols);
  return compute::View{args.out.buffer, args.out.offset, args.x.rows, cols, static_cast<uint32_t>(stride)};
}

Result<std::vector<RowSlice>> slices_of(const compute::ExpertFfnArgs& args, const compute::View& out, uint32_t middle_stride,
                                        const gpu::Capabilities& capabilities) {
  const uint64_t row_bytes = uint64_t{args.top_k} * middle_stride * 4;
  if (row_bytes > capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "expert_ffn: the inner values of one row take " + std::to_string(row_bytes) +
                                                     " bytes, a storage binding holds " +
                                                     std::to_string(capabilities.storage_binding_bytes_max));
  }
  const uint64_t middle_max = std::min(kMiddleBytesMax, capabilities.storage_binding_bytes_max);
  const uint32_t most = static_cast<uint32_t>(std::clamp<uint64_t>(middle_max / row_bytes, 1, std::max(args.x.rows, 1u)));
  CHORUS_ASSIGN(const std::vector<RowSlice> windows, slice_rows(args.x.rows, {args.x, out}, "expert_ffn", capabilities));
  std::vector<RowSlice> slices;
  for (const RowSlice& window : windows) {
    for (uint32_t done = 0; done < window.count; done += most) slices.push_back({window.first + done, std::min(most, window.count - done)});
  }
  return slices;
}

ExpertFfnParams bank_params(const compute::ExpertFfnArgs& args, const WebgpuExpertBank& bank) {
  const compute::ExpertShape& shape = bank.shape();
  const compute::ExpertRecord& layout = bank.layout();
  const uint32_t element = dtype_bytes(shape.dtype);
  const auto quads = [](uint64_t bytes) { return static_cast<uint32_t>(bytes / kQuadBytes); };
  ExpertFfnParams params;
  params.top_k = args.top_k;
  params.hidden = shape.hidden;
  params.inner = shape.inner;
  params.x_stride = args.x.stride;
  params.out_stride = args.out.stride;
  params.middle_stride = layout.inner_padded;
  params.record_quads = quads(layout.bytes);
  params.gate_up_quads = quads(uint64_t{layout.hidden_padded} * element);
  params.down_quads = quads(uint64_t{layout.inner_padded} * element);
  params.down_offset = quads(layout.down_offset);
  params.gate_up_bias = quads(layout.gate_up_bias_offset);
  params.down_bias = quads(layout.down_bias_offset);
  if (shape.biases) params.flags |= kExpertFfnFlagBias;
  if (args.activation == compute::ExpertActivation::clamped_swiglu) params.flags |= kExpertFfnFlagClamped;
  params.alpha = args.alpha;
  params.limit = args.limit;
  return params;
}

// The most tiles that the routes of a step can make.
uint32_t tiles_max(const ExpertFfnParams& params) {
  return std::min(params.routes, params.slot_count) + params.routes / params.tile_routes;
}

// Where things stand in the table that expert_ffn_sort.wgsl writes; returns its bytes.
uint64_t place_table(ExpertFfnParams& params) {
  params.counts_at = 4 + 4 * tiles_max(params);
  params.routes_at = params.counts_at + params.slot_count;
  return (uint64_t{params.routes_at} + params.routes) * 4;
}

// `groups`: routes or tiles of them.
Status cut_product(ExpertFfnProduct& product, uint32_t groups, uint32_t pairs, uint32_t pairs_per_group,
                   const gpu::Capabilities& capabilities) {
  ExpertFfnParams& params = product.params;
  params.group_rows = pairs_per_group;
  params.row_groups = divide_up(pairs, pairs_per_group);
  const uint64_t workgroups = uint64_t{groups} * params.row_groups;
  if (workgroups > std::numeric_limits<uint32_t>::max()) {
    return make_error(ErrorCode::limit_exceeded, "expert_ffn: expected fewer than 2^32 workgroups, found " + std::to_string(workgroups));
  }
  params.workgroups = static_cast<uint32_t>(workgroups);
  product.grid = gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max);
  return {};
}

struct Planner {
  const compute::ExpertFfnArgs& args;
  const WebgpuExpertBank& bank;
  const gpu::Capabilities& capabilities;
  const compute::View& out;
  std::string_view variant;

  Result<ExpertFfnStep> step(RowSlice slice, const WebgpuExpertBank::Shard& shard) const {
    ExpertFfnStep step;
    step.slice = slice;
    RowWindow x_window = bind_rows(args.x, slice, gpu::Access::read, capabilities);
    RowWindow out_window = bind_rows(out, slice, gpu::Access::read_write, capabilities);
    ExpertFfnParams params = bank_params(args, bank);
    params.routes = slice.count * args.top_k;
    params.route_first = slice.first * args.top_k;
    params.x_offset = x_window.offset;
    params.out_offset = out_window.offset;
    params.slot_first = shard.first_slot;
    params.slot_count = shard.slot_count;
    step.x = std::move(x_window.binding);
    step.out = std::move(out_window.binding);
    step.records = {shard.storage, gpu::Access::read};
    step.middle_bytes = uint64_t{params.routes} * params.middle_stride * 4;
    uint32_t groups = params.routes, pairs_per_group = kTilePairs;
    params.tile_routes = tile_routes_of(variant);
    if (params.tile_routes > 0) {
      step.table_bytes = place_table(params);
      groups = tiles_max(params);
    } else {
      pairs_per_group = pairs_per_workgroup(variant, capabilities);
    }
    step.gate_up.params = step.down.params = params;
    CHORUS_TRY(cut_product(step.gate_up, groups, params.middle_stride, pairs_per_group, capabilities));
    CHORUS_TRY(cut_product(step.down, groups, divide_up(params.hidden, 2), pairs_per_group, capabilities));
    return step;
  }
};

Status find_shaders(ExpertFfnPlan& plan, const compute::ExpertFfnArgs& args) {
  const std::string dtype(dtype_name(args.bank->shape().dtype));
  const std::string gate_up = "gate_up_" + dtype + (quad_aligned(args.x) ? "_quad" : "_element"), down = "down_" + dtype;
  if (tile_routes_of(plan.variant) > 0) {
    CHORUS_ASSIGN(plan.sort, require_shader("expert_ffn_sort", "base"));
    CHORUS_ASSIGN(plan.gate_up, require_shader("expert_ffn_tile", plan.variant + "_" + gate_up));
    CHORUS_ASSIGN(plan.down, require_shader("expert_ffn_tile", plan.variant + "_" + down));
    return {};
  }
  const std::string reduce = plan.variant == kRowSubgroup ? "_subgroup" : "_workgroup";
  CHORUS_ASSIGN(plan.gate_up, require_shader("expert_ffn_row", gate_up + reduce));
  CHORUS_ASSIGN(plan.down, require_shader("expert_ffn_row", down + reduce));
  return {};
}

}  // namespace

std::vector<std::string> expert_ffn_variants(const gpu::Capabilities& capabilities) {
  std::vector<std::string> names = {std::string(kRow), std::string(kTile32), std::string(kTile8)};
  if (has_fixed_subgroups(capabilities)) names.emplace_back(kRowSubgroup);
  return names;
}

Result<ExpertFfnPlan> plan_expert_ffn(const compute::ExpertFfnArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  const std::string_view chosen = variant_for(args.x.rows, capabilities);
  ExpertFfnPlan plan;
  CHORUS_ASSIGN(plan.variant, pick_variant("expert_ffn", forced, chosen, capabilities, expert_ffn_variants));
  CHORUS_TRY(require_other_buffer("expert_ffn", args.out, {args.x.buffer, args.slots}));
  CHORUS_TRY(find_shaders(plan, args));
  const WebgpuExpertBank& bank = *static_cast<const WebgpuExpertBank*>(args.bank);
  CHORUS_ASSIGN(const compute::View out, routes_of_rows(args));
  CHORUS_ASSIGN(const std::vector<RowSlice> slices, slices_of(args, out, bank.layout().inner_padded, capabilities));
  const Planner planner{args, bank, capabilities, out, plan.variant};
  for (const RowSlice& slice : slices) {
    for (const WebgpuExpertBank::Shard& shard : bank.shards()) {
      CHORUS_ASSIGN(ExpertFfnStep step, planner.step(slice, shard));
      plan.steps.push_back(std::move(step));
    }
  }
  return plan;
}

Status record_expert_ffn(WebgpuContext& context, const compute::ExpertFfnArgs& args) {
  gpu::Device& device = context.device;
  CHORUS_ASSIGN(const ExpertFfnPlan plan, plan_expert_ffn(args, device.capabilities(), context.forced_variant("expert_ffn")));
  if (plan.steps.empty()) return {};
  CHORUS_ASSIGN(const gpu::Binding slots, bind_buffer(args.slots, gpu::Access::read, device.capabilities()));
  for (const ExpertFfnStep& step : plan.steps) {
    CHORUS_ASSIGN(const std::shared_ptr<gpu::Storage> middle, context.scratch.acquire("expert_ffn middle", step.middle_bytes));
    gpu::Binding routes = slots;
    if (plan.sort != nullptr) {
      CHORUS_ASSIGN(const std::shared_ptr<gpu::Storage> table, context.scratch.acquire("expert_ffn routes", step.table_bytes));
      const gpu::Binding table_out{table, gpu::Access::read_write};
      CHORUS_TRY(device.dispatch({plan.sort, {slots, table_out}, as_params(step.gate_up.params), {}}));
      routes = gpu::Binding{table, gpu::Access::read};
    }
    const gpu::Binding middle_out{middle, gpu::Access::read_write}, middle_in{middle, gpu::Access::read};
    CHORUS_TRY(
        device.dispatch({plan.gate_up, {step.x, step.records, routes, middle_out}, as_params(step.gate_up.params), step.gate_up.grid}));
    CHORUS_TRY(device.dispatch({plan.down, {middle_in, step.records, routes, step.out}, as_params(step.down.params), step.down.grid}));
  }
  return {};
}

}  // namespace chorus::kernels
