#include "kernels/gather_rows/gather_rows_webgpu.h"

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
  plan.grid.x = 0;
  if (args.out.rows == 0 || args.out.cols == 0) return plan;
  plan.shader = find_shader("gather_rows", "base");
  CHORUS_CHECK(plan.shader != nullptr);
  CHORUS_ASSIGN(BoundView x, bind_view(args.x, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(BoundView out, bind_view(args.out, gpu::Access::read_write, capabilities));
  CHORUS_ASSIGN(plan.indices, bind_buffer(args.indices, gpu::Access::read, capabilities));
  const uint32_t chunks = (args.out.cols - 1) / kColumnsPerWorkgroup + 1;
  plan.params = {args.out.rows, args.out.cols, args.x.rows, x.offset, args.x.stride, out.offset, args.out.stride, chunks};
  plan.grid = gpu::fold_grid(uint64_t{args.out.rows} * chunks, capabilities.workgroups_per_dimension_max);
  plan.x = std::move(x.binding);
  plan.out = std::move(out.binding);
  return plan;
}

Status record_gather_rows(WebgpuContext& context, const compute::GatherRowsArgs& args) {
  CHORUS_ASSIGN(GatherRowsPlan plan, plan_gather_rows(args, context.device.capabilities(), context.forced_variant("gather_rows")));
  if (plan.grid.x == 0) return {};
  gpu::Dispatch dispatch;
  dispatch.shader = plan.shader;
  dispatch.bindings = {std::move(plan.x), std::move(plan.indices), std::move(plan.out)};
  dispatch.params = as_params(plan.params);
  dispatch.grid = plan.grid;
  return context.device.dispatch(dispatch);
}

}  // namespace chorus::kernels
