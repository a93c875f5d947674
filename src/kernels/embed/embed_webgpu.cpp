#include "kernels/embed/embed_webgpu.h"

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
  CHORUS_ASSIGN(BoundView out, bind_view(args.out, gpu::Access::read_write, capabilities));
  EmbedParams params;
  params.rows = args.out.rows;
  params.cols = args.out.cols;
  params.quads_per_row = table.padded_cols() / 4;
  params.table_rows = table.rows();
  params.out_offset = out.offset;
  params.out_stride = args.out.stride;
  params.chunks_per_row = (params.quads_per_row - 1) / kQuadsPerWorkgroup + 1;
  for (const WebgpuWeight::Shard& shard : table.shards()) {
    params.shard_first_row = shard.first_row;
    params.shard_rows = shard.row_count;
    plan.shards.push_back(params);
  }
  plan.grid = gpu::fold_grid(uint64_t{args.out.rows} * params.chunks_per_row, capabilities.workgroups_per_dimension_max);
  plan.out = std::move(out.binding);
  return plan;
}

Status record_embed(WebgpuContext& context, const compute::EmbedArgs& args) {
  CHORUS_ASSIGN(const EmbedPlan plan, plan_embed(args, context.device.capabilities(), context.forced_variant("embed")));
  for (size_t index = 0; index < plan.shards.size(); ++index) {
    gpu::Dispatch dispatch;
    dispatch.shader = plan.shader;
    dispatch.bindings = {plan.ids, gpu::Binding{weight_of(args.table).shards()[index].storage, gpu::Access::read}, plan.out};
    dispatch.params = as_params(plan.shards[index]);
    dispatch.grid = plan.grid;
    CHORUS_TRY(context.device.dispatch(dispatch));
  }
  return {};
}

}  // namespace chorus::kernels
