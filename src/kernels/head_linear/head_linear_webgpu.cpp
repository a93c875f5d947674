#include "kernels/head_linear/head_linear_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "head_linear";
constexpr std::string_view kRowVariant = "row";
constexpr std::string_view kTileVariant = "tile";
constexpr uint32_t kRowsOfRowKernel = 8;
constexpr uint32_t kRowVariantRowsMax = 16;  // two passes over the weights still cost less than a tile that is mostly empty
constexpr uint32_t kRowColumns = 32;         // of a workgroup of head_linear_row.wgsl
constexpr uint32_t kTile = 64;               // head_linear_tile.wgsl

uint32_t divide_up(uint32_t value, uint32_t by) { return value / by + (value % by != 0 ? 1 : 0); }

bool reads_quads(const compute::HeadLinearArgs& args) {
  return args.x.offset % 4 == 0 && args.x.stride % 4 == 0 && args.x_head_stride % 4 == 0 && args.weight->cols() % 4 == 0;
}

HeadLinearParams params_of(const compute::HeadLinearArgs& args, const WebgpuWeight::Shard& shard, RowSlice slice) {
  HeadLinearParams params;
  params.rows = slice.count;
  params.head_cols = args.weight->rows() / args.heads;
  params.depth = args.weight->cols();
  params.weight_quads = weight_of(args.weight).padded_cols() / 4;
  params.x_stride = args.x.stride;
  params.x_head_stride = args.x_head_stride;
  params.result_stride = args.out.stride;
  params.shard_first = shard.first_row;
  params.shard_rows = shard.row_count;
  params.first_head = shard.first_row / params.head_cols;
  params.heads = (shard.first_row + shard.row_count - 1) / params.head_cols - params.first_head + 1;
  return params;
}

Result<HeadLinearStep> plan_step(const compute::HeadLinearArgs& args, const gpu::Capabilities& capabilities, std::string_view variant,
                                 const WebgpuWeight::Shard& shard, RowSlice slice) {
  HeadLinearStep step;
  const RowWindow x = bind_rows(args.x, slice, gpu::Access::read, capabilities);
  const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
  step.x = x.binding;
  step.out = out.binding;
  step.weight = {shard.storage, gpu::Access::read};
  step.params = params_of(args, shard, slice);
  step.params.x_offset = x.offset;
  step.params.result_offset = out.offset;
  const std::string build = std::string(dtype_name(args.weight->dtype())) + (reads_quads(args) ? "_quad" : "_element");
  if (variant == kRowVariant) {
    const bool one = slice.count == 1 && reads_quads(args);
    CHORUS_ASSIGN(step.shader, require_shader("head_linear_row", build + (one ? "_1" : "_8")));
    step.params.tiles_m = 1;
    step.params.tiles_n = divide_up(shard.row_count, kRowColumns);
    step.grid = gpu::fold_grid(step.params.tiles_n, capabilities.workgroups_per_dimension_max);
    return step;
  }
  CHORUS_ASSIGN(step.shader, require_shader("head_linear_tile", build));
  step.params.tiles_m = divide_up(slice.count, kTile);
  step.params.tiles_n = divide_up(step.params.head_cols, kTile);
  const uint64_t workgroups = uint64_t{step.params.tiles_m} * step.params.tiles_n * step.params.heads;
  CHORUS_CHECK(workgroups <= UINT32_MAX);
  step.grid = gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max);
  return step;
}

}  // namespace

std::vector<std::string> head_linear_variants(const gpu::Capabilities&) { return {std::string(kRowVariant), std::string(kTileVariant)}; }

Result<HeadLinearPlan> plan_head_linear(const compute::HeadLinearArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced) {
  HeadLinearPlan plan;
  if (args.out.rows == 0) return plan;
  const std::string_view chosen = args.out.rows <= kRowVariantRowsMax ? kRowVariant : kTileVariant;
  CHORUS_ASSIGN(plan.variant, pick_variant(kKernel, forced, chosen, capabilities, head_linear_variants));
  CHORUS_TRY(require_other_buffer(kKernel, args.out, {args.x.buffer}));
  CHORUS_ASSIGN(const std::vector<RowSlice> slices, slice_rows(args.out.rows, {args.x, args.out}, kKernel, capabilities));
  for (const RowSlice& slice : slices) {
    const uint32_t rows_max = plan.variant == kRowVariant ? kRowsOfRowKernel : slice.count;
    for (uint32_t done = 0; done < slice.count; done += rows_max) {
      const RowSlice part{slice.first + done, std::min(rows_max, slice.count - done)};
      for (const WebgpuWeight::Shard& shard : weight_of(args.weight).shards()) {
        CHORUS_ASSIGN(HeadLinearStep step, plan_step(args, capabilities, plan.variant, shard, part));
        plan.steps.push_back(std::move(step));
      }
    }
  }
  return plan;
}

Status record_head_linear(WebgpuContext& context, const compute::HeadLinearArgs& args) {
  CHORUS_ASSIGN(const HeadLinearPlan plan, plan_head_linear(args, context.device.capabilities(), context.forced_variant(kKernel)));
  for (const HeadLinearStep& step : plan.steps) {
    CHORUS_TRY(context.device.dispatch({step.shader, {step.x, step.weight, step.out}, as_params(step.params), step.grid}));
  }
  return {};
}

}  // namespace chorus::kernels
