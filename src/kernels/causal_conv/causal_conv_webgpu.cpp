#include "kernels/causal_conv/causal_conv_webgpu.h"

#include <algorithm>

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "causal_conv";
constexpr std::string_view kVariant = "window";
constexpr uint32_t kThreads = 64;  // per workgroup, along channels
// Long tiles reread fewer rows; short ones give small batches more threads. The results are the same.
constexpr uint32_t kLongTile = 16, kShortTile = 4;
constexpr uint32_t kLongTileFromRows = 1024;

}  // namespace

std::vector<std::string> causal_conv_variants(const gpu::Capabilities&) { return {std::string(kVariant)}; }

Result<CausalConvPlan> plan_causal_conv(const compute::CausalConvArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced) {
  if (!forced.empty() && forced != kVariant) {
    return make_error(ErrorCode::not_found, "causal_conv: expected the variant window, found " + std::string(forced));
  }
  CausalConvPlan plan;
  // Without rows a lone sequence still hands its history on.
  if (args.sequences->spans.empty() || (args.x.rows == 0 && !args.history_out)) return plan;
  CHORUS_TRY(
      require_other_buffer(kKernel, args.out, {args.x.buffer, args.weight, args.history_in, args.sequences->device, args.history_out}));
  for (const compute::Buffer* input : {args.x.buffer, args.weight, args.history_in, args.sequences->device}) {
    if (input == args.history_out) {
      return make_error(ErrorCode::unsupported, "causal_conv: history_out lies in the buffer of an input");
    }
  }
  const uint32_t width = quad_aligned(args.x) && quad_aligned(args.out) ? 4 : 1;
  CHORUS_ASSIGN(const BoundView x, bind_view(args.x, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(const BoundView out, bind_view(args.out, gpu::Access::read_write, capabilities));
  plan.bindings = {x.binding};
  for (const compute::Buffer* input : {args.weight, args.history_in, args.sequences->device}) {
    CHORUS_ASSIGN(gpu::Binding binding, bind_buffer(input, gpu::Access::read, capabilities));
    plan.bindings.push_back(std::move(binding));
  }
  plan.bindings.push_back(out.binding);
  if (args.history_out) {
    CHORUS_ASSIGN(gpu::Binding binding, bind_buffer(args.history_out, gpu::Access::read_write, capabilities));
    plan.bindings.push_back(std::move(binding));
  }

  CausalConvParams& params = plan.params;
  params.rows = args.x.rows;
  params.channels = args.x.cols / width;
  params.sequences = static_cast<uint32_t>(args.sequences->spans.size());
  params.tile_rows = args.x.rows >= kLongTileFromRows ? kLongTile : kShortTile;
  params.tiles = std::max(1u, args.x.rows / params.tile_rows + (args.x.rows % params.tile_rows != 0 ? 1 : 0));
  params.x_offset = x.offset / width;
  params.x_stride = args.x.stride / width;
  params.out_offset = out.offset / width;
  params.out_stride = args.out.stride / width;
  const uint64_t channel_groups = (uint64_t{params.channels} + kThreads - 1) / kThreads;
  plan.grid = gpu::fold_grid(channel_groups * params.tiles, capabilities.workgroups_per_dimension_max);
  plan.shader = std::string(width == 4 ? "vec4" : "scalar") + (args.history_out ? "_history" : "");
  return plan;
}

Status record_causal_conv(WebgpuContext& context, const compute::CausalConvArgs& args) {
  CHORUS_ASSIGN(const CausalConvPlan plan, plan_causal_conv(args, context.device.capabilities(), context.forced_variant(kKernel)));
  if (plan.shader.empty()) return {};
  const gpu::ShaderSource* shader = find_shader(kKernel, plan.shader);
  CHORUS_CHECK(shader != nullptr);
  return context.device.dispatch({shader, plan.bindings, as_params(plan.params), plan.grid});
}

}  // namespace chorus::kernels
