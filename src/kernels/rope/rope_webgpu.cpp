#include "kernels/rope/rope_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "rope";
constexpr uint32_t kThreads = 256;

Status record_slice(WebgpuContext& context, const compute::RopeArgs& args, const RopePlan& plan, RowSlice slice) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow out = bind_rows(args.out, slice, gpu::Access::read_write, capabilities);
  const RowWindow x = plan.in_place ? out : bind_rows(args.x, slice, gpu::Access::read, capabilities);
  const RowWindow cosine = bind_rows(args.cosine, slice, gpu::Access::read, capabilities);
  const RowWindow sine = bind_rows(args.sine, slice, gpu::Access::read, capabilities);
  RopeParams params;
  params.heads = args.heads;
  params.head_dim = args.head_dim;
  params.first = args.first;
  params.half = args.rotary_dim / 2;
  params.items = plan.items;
  params.interleaved = args.form == compute::RopeForm::pairs ? 1 : 0;
  params.x_offset = x.offset;
  params.x_stride = args.x.stride;
  params.cosine_offset = cosine.offset;
  params.cosine_stride = args.cosine.stride;
  params.sine_offset = sine.offset;
  params.sine_stride = args.sine.stride;
  params.out_offset = out.offset;
  params.out_stride = args.out.stride;
  params.count = slice.count * args.heads * plan.items;  // below 2^31: the slice fits a binding
  params.workgroups = (params.count + kThreads - 1) / kThreads;
  gpu::Dispatch dispatch{plan.shader,
                         {cosine.binding, sine.binding, out.binding},
                         as_params(params),
                         gpu::fold_grid(params.workgroups, capabilities.workgroups_per_dimension_max)};
  if (!plan.in_place) dispatch.bindings.push_back(x.binding);
  return context.device.dispatch(dispatch);
}

}  // namespace

std::vector<std::string> rope_variants(const gpu::Capabilities&) { return {"base"}; }

Result<RopePlan> plan_rope(const compute::RopeArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  CHORUS_TRY(pick_variant(kKernel, forced, "base", capabilities, rope_variants));
  CHORUS_TRY(require_other_buffer(kKernel, args.out, {args.cosine.buffer, args.sine.buffer}));
  RopePlan plan;
  CHORUS_ASSIGN(plan.in_place, is_in_place(kKernel, args.x, args.out));
  CHORUS_ASSIGN(plan.shader, require_shader(kKernel, plan.in_place ? "in_place" : "base"));
  plan.items = args.rotary_dim / 2 + (plan.in_place ? 0 : args.head_dim - args.rotary_dim);
  CHORUS_ASSIGN(plan.slices, slice_rows(args.x.rows, {args.x, args.cosine, args.sine, args.out}, kKernel, capabilities));
  return plan;
}

Status record_rope(WebgpuContext& context, const compute::RopeArgs& args) {
  CHORUS_ASSIGN(const RopePlan plan, plan_rope(args, context.device.capabilities(), context.forced_variant(kKernel)));
  for (const RowSlice& slice : plan.slices) CHORUS_TRY(record_slice(context, args, plan, slice));
  return {};
}

}  // namespace chorus::kernels
