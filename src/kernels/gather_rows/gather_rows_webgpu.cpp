#include "kernels/gather_rows/gather_rows_webgpu.h"

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr uint32_t kColumnsPerWorkgroup = 256;  // workgroup_size in gather_rows.wgsl

}  // namespace

std::vector<std::string> gather_rows_variants(const gpu::Capabilities&) { return {"base"}; }

Result<GatherRowsPlan> plan_gather_rows(const compute::GatherRowsArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced) {
  if (!forced.empty() && forced != "base") {
    return make_error(ErrorCode::unsupported, "gather_rows has no variant " + std::string(forced));
  }
  GatherRowsPlan plan;
  if (args.out.rows == 0 || args.out.cols == 0) return plan;
  plan.shader = find_shader("gather_rows", "base");
  CHORUS_CHECK(plan.shader != nullptr);
  CHORUS_ASSIGN(BoundView x, bind_view(args.x, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(plan.indices, bind_buffer(args.indices, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(const std::vector<RowSlice> slices, slice_rows(args.out.rows, {args.out}, "gather_rows", capabilities));
  const uint32_t chunks = (args.out.cols - 1) / kColumnsPerWorkgroup + 1;
  for (const RowSlice& slice : slices) {
    const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
    GatherRowsStep step;
    step.params = {slice.count, args.out.cols, args.x.rows, x.offset, args.x.stride, out.offset, args.out.stride, chunks, slice.first, {}};
    step.grid = gpu::fold_grid(uint64_t{slice.count} * chunks, capabilities.workgroups_per_dimension_max);
    step.out = out.binding;
    plan.steps.push_back(step);
  }
  plan.x = std::move(x.binding);
  return plan;
}

Status record_gather_rows(WebgpuContext& context, const compute::GatherRowsArgs& args) {
  CHORUS_ASSIGN(const GatherRowsPlan plan, plan_gather_rows(args, context.device.capabilities(), context.forced_variant("gather_rows")));
  for (const GatherRowsStep& step : plan.steps) {
    gpu::Dispatch dispatch;
    dispatch.shader = plan.shader;
    dispatch.bindings = {plan.x, plan.indices, step.out};
    dispatch.params = as_params(step.params);
    dispatch.grid = step.grid;
    CHORUS_TRY(context.device.dispatch(dispatch));
  }
  return {};
}

}  // namespace chorus::kernels
