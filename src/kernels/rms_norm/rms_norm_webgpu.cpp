#include "kernels/rms_norm/rms_norm_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t cols, x_offset, x_stride, out_offset, out_stride, rows;
  float epsilon, weight_bias;
};
static_assert(sizeof(Params) == 32);

constexpr uint32_t kNarrowCols = 512;  // up to here 64 threads read at most two quads each

}  // namespace

std::vector<std::string> rms_norm_variants(const gpu::Capabilities&) { return {"scalar", "vec4_narrow", "vec4"}; }

Result<RmsNormPlan> plan_rms_norm(const compute::RmsNormArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  const bool quads = quad_aligned(args.x) && quad_aligned(args.out);
  const std::string_view chosen = !quads ? "scalar" : args.x.cols <= kNarrowCols ? "vec4_narrow" : "vec4";
  CHORUS_ASSIGN(const std::string variant, pick_variant("rms_norm", forced, chosen, capabilities, rms_norm_variants));
  if (!quads && variant != "scalar") {
    return make_error(ErrorCode::unsupported, "rms_norm: variant " + variant + " needs rows that start at multiples of four elements");
  }
  CHORUS_TRY(require_other_buffer("rms_norm", args.out, {args.weight}));
  RmsNormPlan plan;
  CHORUS_ASSIGN(plan.in_place, is_in_place("rms_norm", args.x, args.out));
  CHORUS_ASSIGN(plan.shader, require_shader("rms_norm", variant + (plan.in_place ? "_in_place" : "")));
  CHORUS_ASSIGN(plan.slices, slice_rows(args.x.rows, {args.x, args.out}, "rms_norm", capabilities));
  return plan;
}

Status record_rms_norm(WebgpuContext& context, const compute::RmsNormArgs& args) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const RmsNormPlan plan, plan_rms_norm(args, capabilities, context.forced_variant("rms_norm")));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
    const RowWindow x = plan.in_place ? out : bind_rows(args.x, slice, gpu::Access::read, capabilities);
    const Params params{args.x.cols,     x.offset,    args.x.stride, out.offset,
                        args.out.stride, slice.count, args.epsilon,  args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f};
    gpu::Dispatch dispatch{plan.shader,
                           {{storage_of(args.weight), gpu::Access::read, 0, 0}, out.binding},
                           as_params(params),
                           gpu::fold_grid(slice.count, capabilities.workgroups_per_dimension_max)};
    if (!plan.in_place) dispatch.bindings.push_back(x.binding);
    CHORUS_TRY(context.device.dispatch(dispatch));
  }
  return {};
}

}  // namespace chorus::kernels
