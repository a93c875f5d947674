#include "kernels/select_keys/select_keys_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr uint64_t kScratchBytes = 64ull << 20;
constexpr uint32_t kBlockKeys = 64;
constexpr uint64_t kListBytes = 8ull << 20;  // of all lists together, unless one has more
constexpr uint32_t kListsMax = 256;

struct ScoresParams {
  uint32_t heads, head_dim, rows, first_position, key_count, first_block, block_count, key_origin;
  uint32_t q_offset, q_stride, k_offset, k_stride, w_offset, w_stride;
  float scale;
  uint32_t workgroups;
};
static_assert(sizeof(ScoresParams) == 64);

struct ChooseParams {
  uint32_t rows, first_position, key_count, words, top_k, selected_offset, padding0, padding1;
};
static_assert(sizeof(ChooseParams) == 32);

struct TiesParams {
  uint32_t rows, first_position, key_count, words, top_k, selected_offset, horizon, list_length, workgroups, padding0, padding1, padding2;
};
static_assert(sizeof(TiesParams) == 48);

uint32_t words_of(const compute::SelectKeysArgs& args) { return static_cast<uint32_t>((uint64_t{args.keys.rows} + 31) / 32); }

compute::MutableView selected_view(const compute::SelectKeysArgs& args) {
  return {args.selected, 0, args.q.rows, words_of(args), words_of(args)};
}

Result<std::vector<RowSlice>> key_windows(const compute::SelectKeysArgs& args, const gpu::Capabilities& capabilities) {
  uint32_t most = args.keys.rows;
  if (window_bytes(args.keys, args.keys.rows) + capabilities.storage_offset_alignment > capabilities.storage_binding_bytes_max) {
    most = rows_per_window(args.keys, capabilities) / kBlockKeys * kBlockKeys;
  }
  if (most == 0) {
    return make_error(ErrorCode::limit_exceeded, "select_keys: expected 64 keys to fit one binding of " +
                                                     std::to_string(capabilities.storage_binding_bytes_max) + " bytes, found longer rows");
  }
  std::vector<RowSlice> windows;
  for (uint64_t first = 0; first < args.keys.rows; first += most) {
    windows.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(std::min<uint64_t>(most, args.keys.rows - first))});
  }
  return windows;
}

Status record_scores(WebgpuContext& context, const compute::SelectKeysArgs& args, const SelectKeysPlan& plan, RowSlice rows, RowSlice keys,
                     const gpu::Binding& scores) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow q = bind_rows(args.q, rows, gpu::Access::read, capabilities);
  const RowWindow k = bind_rows(args.keys, keys, gpu::Access::read, capabilities);
  const RowWindow w = bind_rows(args.weights, rows, gpu::Access::read, capabilities);
  const uint32_t blocks = (keys.count + kBlockKeys - 1) / kBlockKeys;
  const uint64_t workgroups = uint64_t{rows.count} * blocks;
  const ScoresParams params{args.heads,     args.head_dim,           rows.count, args.keys.rows - args.q.rows + rows.first,
                            args.keys.rows, keys.first / kBlockKeys, blocks,     keys.first,
                            q.offset,       args.q.stride,           k.offset,   args.keys.stride,
                            w.offset,       args.weights.stride,     args.scale, static_cast<uint32_t>(workgroups)};
  return context.device.dispatch({plan.scores,
                                  {q.binding, k.binding, w.binding, scores},
                                  as_params(params),
                                  gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max)});
}

gpu::Binding readable(gpu::Binding binding) {
  binding.access = gpu::Access::read;
  return binding;
}

Status record_choose(WebgpuContext& context, const compute::SelectKeysArgs& args, const SelectKeysPlan& plan, RowSlice rows,
                     const gpu::Binding& written_scores, const gpu::Binding& ties) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow selected = bind_rows(selected_view(args), rows, gpu::Access::read_write, capabilities);
  const ChooseParams params{
      rows.count, args.keys.rows - args.q.rows + rows.first, args.keys.rows, words_of(args), args.top_k, selected.offset, 0, 0};
  return context.device.dispatch({plan.choose,
                                  {readable(written_scores), selected.binding, ties},
                                  as_params(params),
                                  gpu::fold_grid(rows.count, capabilities.workgroups_per_dimension_max)});
}

Status record_ties(WebgpuContext& context, const compute::SelectKeysArgs& args, const SelectKeysPlan& plan, RowSlice rows,
                   const gpu::Binding& scores, const gpu::Binding& ties, const gpu::Binding& lists) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow selected = bind_rows(selected_view(args), rows, gpu::Access::read_write, capabilities);
  const uint32_t workgroups = std::min(plan.lists, rows.count);
  const TiesParams params{rows.count,
                          args.keys.rows - args.q.rows + rows.first,
                          args.keys.rows,
                          words_of(args),
                          args.top_k,
                          selected.offset,
                          args.horizon,
                          plan.list_length,
                          workgroups,
                          0,
                          0,
                          0};
  return context.device.dispatch({plan.ties,
                                  {readable(scores), readable(ties), lists, selected.binding},
                                  as_params(params),
                                  gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max)});
}

}  // namespace

std::vector<std::string> select_keys_variants(const gpu::Capabilities&) { return {"base", "vec4"}; }

Result<SelectKeysPlan> plan_select_keys(const compute::SelectKeysArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced) {
  const bool quads = args.head_dim % 4 == 0 && quad_aligned(args.q) && quad_aligned(args.keys);
  const std::string_view chosen = quads && !capabilities.software ? "vec4" : "base";
  const Result<std::string> variant = pick_variant("select_keys", forced, chosen, capabilities, select_keys_variants);
  if (!variant.ok()) return variant.error();
  if (!quads && *variant != "base") {
    return make_error(ErrorCode::unsupported,
                      "select_keys: variant " + *variant + " needs rows and heads that start at multiples of four elements");
  }
  SelectKeysPlan plan;
  CHORUS_ASSIGN(plan.scores, require_shader("select_keys_scores", *variant));
  CHORUS_ASSIGN(plan.choose, require_shader("select_keys_choose", "base"));
  CHORUS_ASSIGN(plan.ties, require_shader("select_keys_ties", "base"));
  if (args.q.rows == 0) return plan;
  const uint64_t row_bytes = uint64_t{args.keys.rows} * 4;
  const uint64_t scratch = std::min(kScratchBytes, capabilities.storage_binding_bytes_max);
  if (row_bytes > scratch) {
    return make_error(ErrorCode::limit_exceeded, "select_keys: expected the scores of one row to fit " + std::to_string(scratch) +
                                                     " bytes, found " + std::to_string(row_bytes));
  }
  plan.list_length = std::max(args.horizon, args.keys.rows);
  if (uint64_t{plan.list_length} * 4 > scratch) {
    return make_error(ErrorCode::limit_exceeded, "select_keys: expected a horizon of at most " + std::to_string(scratch / 4) + ", found " +
                                                     std::to_string(plan.list_length));
  }
  // Workgroups of the choice among ties: one dimension of the grid, lists in one binding.
  const uint64_t lists_max = std::min<uint64_t>(kListsMax, capabilities.workgroups_per_dimension_max);
  plan.lists = static_cast<uint32_t>(std::clamp<uint64_t>(std::min(kListBytes, scratch) / 4 / plan.list_length, 1, lists_max));
  CHORUS_ASSIGN(const std::vector<RowSlice> keys, key_windows(args, capabilities));
  CHORUS_ASSIGN(const std::vector<RowSlice> slices,
                slice_rows(args.q.rows, {args.q, args.weights, selected_view(args)}, "select_keys", capabilities));
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(scratch / row_bytes, args.q.rows));
  for (const RowSlice& slice : slices) {
    for (uint32_t first = 0; first < slice.count; first += most) {
      const RowSlice rows{slice.first + first, std::min(most, slice.count - first)};
      plan.steps.push_back({rows, keys});
      plan.scratch_bytes = std::max(plan.scratch_bytes, rows.count * row_bytes);
    }
  }
  return plan;
}

Status record_select_keys(WebgpuContext& context, const compute::SelectKeysArgs& args) {
  CHORUS_ASSIGN(const SelectKeysPlan plan, plan_select_keys(args, context.device.capabilities(), context.forced_variant("select_keys")));
  if (plan.steps.empty()) return {};
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> storage,
                context.scratch.acquire("select_keys scores", std::max<uint64_t>(plan.scratch_bytes, 16)));
  const gpu::Binding scores{std::move(storage), gpu::Access::read_write, 0, 0};
  uint32_t most = 0;
  for (const SelectKeysStep& step : plan.steps) most = std::max(most, step.rows.count);
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> marks, context.scratch.acquire("select_keys ties", std::max<uint64_t>(4ull * most, 16)));
  const gpu::Binding ties{std::move(marks), gpu::Access::read_write, 0, 0};
  const uint64_t list_bytes = 4ull * plan.list_length * std::min(plan.lists, most);
  CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> entries, context.scratch.acquire("select_keys lists", std::max<uint64_t>(list_bytes, 16)));
  const gpu::Binding lists{std::move(entries), gpu::Access::read_write, 0, 0};
  for (const SelectKeysStep& step : plan.steps) {
    for (const RowSlice& keys : step.keys) CHORUS_TRY(record_scores(context, args, plan, step.rows, keys, scores));
    CHORUS_TRY(record_choose(context, args, plan, step.rows, scores, ties));
    if (args.top_k < args.keys.rows) CHORUS_TRY(record_ties(context, args, plan, step.rows, scores, ties, lists));
  }
  return {};
}

}  // namespace chorus::kernels
