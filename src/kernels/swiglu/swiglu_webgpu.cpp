#include "kernels/swiglu/swiglu_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t row_units, gate_offset, up_offset, in_stride, out_offset, out_stride, count, workgroups;
};
static_assert(sizeof(Params) == 32);

constexpr uint32_t kThreads = 256;

}  // namespace

std::vector<std::string> swiglu_variants(const gpu::Capabilities&) { return {"scalar", "vec4"}; }

Result<SwigluPlan> plan_swiglu(const compute::SwigluArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  const bool quads = quad_aligned(args.gate_up) && quad_aligned(args.out);
  CHORUS_ASSIGN(const std::string variant, pick_variant("swiglu", forced, quads ? "vec4" : "scalar", capabilities, swiglu_variants));
  if (!quads && variant != "scalar") {
    return make_error(ErrorCode::unsupported,
                      "swiglu: variant " + variant + " needs halves and rows that start at multiples of four elements");
  }
  CHORUS_TRY(require_other_buffer("swiglu", args.out, {args.gate_up.buffer}));
  SwigluPlan plan;
  plan.width = variant == "scalar" ? 1 : 4;
  CHORUS_ASSIGN(plan.shader, require_shader("swiglu", variant));
  CHORUS_ASSIGN(plan.slices, slice_rows(args.out.rows, {args.gate_up, args.out}, "swiglu", capabilities));
  return plan;
}

Status record_swiglu(WebgpuContext& context, const compute::SwigluArgs& args) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const SwigluPlan plan, plan_swiglu(args, capabilities, context.forced_variant("swiglu")));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow in = bind_rows(args.gate_up, slice, gpu::Access::read, capabilities);
    const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
    const uint32_t row_units = args.out.cols / plan.width;
    const uint32_t count = slice.count * row_units;  // below 2^31: the slice fits a binding
    const uint32_t workgroups = (count + kThreads - 1) / kThreads;
    const Params params{row_units,
                        in.offset / plan.width,
                        (in.offset + args.out.cols) / plan.width,
                        args.gate_up.stride / plan.width,
                        out.offset / plan.width,
                        args.out.stride / plan.width,
                        count,
                        workgroups};
    CHORUS_TRY(context.device.dispatch({plan.shader,
                                        {in.binding, out.binding},
                                        as_params(params),
                                        gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max)}));
  }
  return {};
}

}  // namespace chorus::kernels
