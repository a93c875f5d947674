#include "kernels/embed/embed_webgpu.h"

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr uint32_t kQuadsPerWorkgroup = 64;  // workgroup_size in embed.wgsl

}  // namespace

// The build follows the stored type of the table; there is nothing to choose.
std::vector<std::string> embed_variants(const gpu::Capabilities&) { return {"base"}; }

Result<EmbedPlan> plan_embed(const compute::EmbedArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  if (!forced.empty() && forced != "base") return make_error(ErrorCode::unsupported, "embed has no variant " + std::string(forced));
  EmbedPlan plan;
  if (args.out.rows == 0 || args.out.cols == 0) return plan;
  const WebgpuWeight& table = weight_of(args.table);
  plan.shader = find_shader("embed", dtype_name(table.dtype()));
  CHORUS_CHECK(plan.shader != nullptr);
  CHORUS_ASSIGN(plan.ids, bind_buffer(args.ids, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(const std::vector<RowSlice> slices, slice_rows(args.out.rows, {args.out}, "embed", capabilities));
  for (const RowSlice& slice : slices) {
    const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
    EmbedStep step;
    step.out = out.binding;
    step.params.rows = slice.count;
    step.params.cols = args.out.cols;
    step.params.quads_per_row = table.padded_cols() / 4;
    step.params.table_rows = table.rows();
    step.params.out_offset = out.offset;
    step.params.out_stride = args.out.stride;
    step.params.chunks_per_row = (step.params.quads_per_row - 1) / kQuadsPerWorkgroup + 1;
    step.params.first_row = slice.first;
    step.grid = gpu::fold_grid(uint64_t{slice.count} * step.params.chunks_per_row, capabilities.workgroups_per_dimension_max);
    for (step.shard = 0; step.shard < table.shards().size(); ++step.shard) {
      step.params.shard_first_row = table.shards()[step.shard].first_row;
      step.params.shard_rows = table.shards()[step.shard].row_count;
      plan.steps.push_back(step);
    }
  }
  return plan;
}

Status record_embed(WebgpuContext& context, const compute::EmbedArgs& args) {
  CHORUS_ASSIGN(const EmbedPlan plan, plan_embed(args, context.device.capabilities(), context.forced_variant("embed")));
  for (const EmbedStep& step : plan.steps) {
    gpu::Dispatch dispatch;
    dispatch.shader = plan.shader;
    dispatch.bindings = {plan.ids, gpu::Binding{weight_of(args.table).shards()[step.shard].storage, gpu::Access::read}, step.out};
    dispatch.params = as_params(step.params);
    dispatch.grid = step.grid;
    CHORUS_TRY(context.device.dispatch(dispatch));
  }
  return {};
}

}  // namespace chorus::kernels
