#include "kernels/layer_norm/layer_norm_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "layer_norm";

struct Params {
  uint32_t cols, x_offset, x_stride, out_offset, out_stride, rows;
  float epsilon;
  uint32_t unused;
};
static_assert(sizeof(Params) == 32);

}  // namespace

std::vector<std::string> layer_norm_variants(const gpu::Capabilities&) { return {"scalar", "vec4"}; }

Result<LayerNormPlan> plan_layer_norm(const compute::LayerNormArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  const bool quads = quad_aligned(args.x) && quad_aligned(args.out);
  CHORUS_ASSIGN(const std::string variant, pick_variant(kKernel, forced, quads ? "vec4" : "scalar", capabilities, layer_norm_variants));
  if (!quads && variant != "scalar") {
    return make_error(ErrorCode::unsupported, "layer_norm: variant " + variant + " needs rows that start at multiples of four elements");
  }
  CHORUS_TRY(require_other_buffer(kKernel, args.out, {args.weight, args.bias}));
  LayerNormPlan plan;
  CHORUS_ASSIGN(plan.in_place, is_in_place(kKernel, args.x, args.out));
  CHORUS_ASSIGN(plan.shader, require_shader(kKernel, variant + (plan.in_place ? "_in_place" : "")));
  CHORUS_ASSIGN(plan.slices, slice_rows(args.x.rows, {args.x, args.out}, kKernel, capabilities));
  return plan;
}

Status record_layer_norm(WebgpuContext& context, const compute::LayerNormArgs& args) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const LayerNormPlan plan, plan_layer_norm(args, capabilities, context.forced_variant(kKernel)));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
    const RowWindow x = plan.in_place ? out : bind_rows(args.x, slice, gpu::Access::read, capabilities);
    const Params params{args.x.cols, x.offset, args.x.stride, out.offset, args.out.stride, slice.count, args.epsilon, 0};
    gpu::Dispatch dispatch{plan.shader,
                           {{storage_of(args.weight), gpu::Access::read}, {storage_of(args.bias), gpu::Access::read}, out.binding},
                           as_params(params),
                           gpu::fold_grid(slice.count, capabilities.workgroups_per_dimension_max)};
    if (!plan.in_place) dispatch.bindings.push_back(x.binding);
    CHORUS_TRY(context.device.dispatch(dispatch));
  }
  return {};
}

}  // namespace chorus::kernels
