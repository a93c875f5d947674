#include "kernels/router/router_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t rows, experts, logits_offset, logits_stride, top_k, groups, groups_kept, flags;
  float scale;
  uint32_t route_first;
  uint32_t padding[2];
};
static_assert(sizeof(Params) == 48);

constexpr uint32_t kFlagSigmoid = 1, kFlagBias = 2, kFlagRenormalise = 4;
constexpr uint32_t kExpertsMax = 2048;  // their scores lie in workgroup memory

uint32_t flags_of(const compute::RouterArgs& args) {
  return (args.score == compute::RouterScore::sigmoid ? kFlagSigmoid : 0) | (args.bias ? kFlagBias : 0) |
         (args.renormalise ? kFlagRenormalise : 0);
}

}  // namespace

std::vector<std::string> router_variants(const gpu::Capabilities&) { return {"base"}; }

Result<RouterPlan> plan_router(const compute::RouterArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  if (args.logits.cols > kExpertsMax) {
    return make_error(ErrorCode::limit_exceeded, "router: expected at most " + std::to_string(kExpertsMax) +
                                                     " experts on this backend, found " + std::to_string(args.logits.cols));
  }
  CHORUS_ASSIGN(const std::string variant, pick_variant("router", forced, "base", capabilities, router_variants));
  for (const compute::Buffer* output : {args.experts, args.weights}) {
    CHORUS_TRY(require_other_buffer("router", compute::View{output, 0, 0, 0, 0}, {args.logits.buffer, args.bias}));
  }
  CHORUS_TRY(require_other_buffer("router", compute::View{args.experts, 0, 0, 0, 0}, {args.weights}));
  RouterPlan plan;
  CHORUS_ASSIGN(plan.shader, require_shader("router", variant));
  CHORUS_ASSIGN(plan.slices, slice_rows(args.logits.rows, {args.logits}, "router", capabilities));
  return plan;
}

Status record_router(WebgpuContext& context, const compute::RouterArgs& args) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const RouterPlan plan, plan_router(args, capabilities, context.forced_variant("router")));
  if (plan.slices.empty()) return {};
  CHORUS_ASSIGN(const gpu::Binding experts, bind_buffer(args.experts, gpu::Access::read_write, capabilities));
  CHORUS_ASSIGN(const gpu::Binding weights, bind_buffer(args.weights, gpu::Access::read_write, capabilities));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow logits = bind_rows(args.logits, slice, gpu::Access::read, capabilities);
    gpu::Binding bias = logits.binding;  // without a bias: something that is only read
    if (args.bias) {
      CHORUS_ASSIGN(bias, bind_buffer(args.bias, gpu::Access::read, capabilities));
    }
    const Params params{slice.count,      args.logits.cols, logits.offset, args.logits.stride,       args.top_k, args.groups,
                        args.groups_kept, flags_of(args),   args.scale,    slice.first * args.top_k, {}};
    CHORUS_TRY(context.device.dispatch({plan.shader,
                                        {logits.binding, bias, experts, weights},
                                        as_params(params),
                                        gpu::fold_grid(slice.count, capabilities.workgroups_per_dimension_max)}));
  }
  return {};
}

}  // namespace chorus::kernels
