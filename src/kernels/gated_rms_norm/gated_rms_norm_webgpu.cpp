#include "kernels/gated_rms_norm/gated_rms_norm_webgpu.h"

#include <algorithm>

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "gated_rms_norm";
constexpr std::string_view kVariant = "rows";
constexpr uint32_t kItemsPerWorkgroup = 8;  // gated_rms_norm.wgsl

Status record_slice(WebgpuContext& context, const compute::GatedRmsNormArgs& args, const GatedRmsNormPlan& plan, RowSlice slice) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow gate = bind_rows(args.gate, slice, gpu::Access::read, capabilities);
  const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
  const RowWindow x = plan.in_place ? out : bind_rows(args.x, slice, gpu::Access::read, capabilities);
  CHORUS_ASSIGN(const gpu::Binding weight, bind_buffer(args.weight, gpu::Access::read, capabilities));
  GatedRmsNormParams params;
  params.heads = args.x.cols / args.head_dim;
  params.items = slice.count * params.heads;
  params.head_width = args.head_dim / plan.width;
  params.head_dim = args.head_dim;
  params.x_offset = x.offset / plan.width;
  params.x_stride = args.x.stride / plan.width;
  params.gate_offset = gate.offset / plan.width;
  params.gate_stride = args.gate.stride / plan.width;
  params.out_offset = out.offset / plan.width;
  params.out_stride = args.out.stride / plan.width;
  params.epsilon = args.epsilon;
  gpu::Dispatch dispatch;
  CHORUS_ASSIGN(dispatch.shader, require_shader(kKernel, plan.shader));
  dispatch.bindings = {gate.binding, weight, out.binding};
  if (!plan.in_place) dispatch.bindings.push_back(x.binding);
  dispatch.params = as_params(params);
  dispatch.grid =
      gpu::fold_grid((uint64_t{params.items} + kItemsPerWorkgroup - 1) / kItemsPerWorkgroup, capabilities.workgroups_per_dimension_max);
  return context.device.dispatch(dispatch);
}

}  // namespace

std::vector<std::string> gated_rms_norm_variants(const gpu::Capabilities&) { return {std::string(kVariant)}; }

Result<GatedRmsNormPlan> plan_gated_rms_norm(const compute::GatedRmsNormArgs& args, const gpu::Capabilities& capabilities,
                                             std::string_view forced) {
  CHORUS_TRY(pick_variant(kKernel, forced, kVariant, capabilities, gated_rms_norm_variants));
  CHORUS_TRY(require_other_buffer(kKernel, args.out, {args.gate.buffer, args.weight}));
  GatedRmsNormPlan plan;
  plan.in_place = args.x.buffer == args.out.buffer;
  if (plan.in_place && (args.x.offset != args.out.offset || args.x.stride != args.out.stride)) {
    return make_error(ErrorCode::unsupported,
                      "gated_rms_norm: expected x to be the output's view or in another buffer, found another view of one buffer");
  }
  const bool quads = args.head_dim % 4 == 0 && quad_aligned(args.x) && quad_aligned(args.gate) && quad_aligned(args.out);
  plan.width = quads ? 4 : 1;
  plan.shader = std::string(quads ? "vec4" : "scalar") + (plan.in_place ? "_in_place" : "");
  CHORUS_ASSIGN(plan.slices, slice_rows(args.x.rows, {args.x, args.gate, args.out}, kKernel, capabilities));
  return plan;
}

Status record_gated_rms_norm(WebgpuContext& context, const compute::GatedRmsNormArgs& args) {
  CHORUS_ASSIGN(const GatedRmsNormPlan plan, plan_gated_rms_norm(args, context.device.capabilities(), context.forced_variant(kKernel)));
  for (const RowSlice& slice : plan.slices) CHORUS_TRY(record_slice(context, args, plan, slice));
  return {};
}

}  // namespace chorus::kernels
