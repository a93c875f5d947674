#include "kernels/segment_softmax/segment_softmax_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t segments, count, padding[2];
};
static_assert(sizeof(Params) == 16);

}  // namespace

std::vector<std::string> segment_softmax_variants(const gpu::Capabilities&) { return {"base"}; }

Result<SegmentSoftmaxPlan> plan_segment_softmax(const compute::SegmentSoftmaxArgs& args, const gpu::Capabilities& capabilities,
                                                std::string_view forced) {
  CHORUS_ASSIGN(const std::string variant, pick_variant("segment_softmax", forced, "base", capabilities, segment_softmax_variants));
  const uint64_t bytes = std::max<uint64_t>(args.count, uint64_t{args.segments} + 1) * 4;
  if (bytes > capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "segment_softmax: " + std::to_string(bytes) +
                                                     " bytes of values or segments, a binding holds " +
                                                     std::to_string(capabilities.storage_binding_bytes_max));
  }
  const compute::View out{args.out, 0, args.count, 1, 1};
  CHORUS_TRY(require_other_buffer("segment_softmax", out, {args.values, args.segment_starts}));
  SegmentSoftmaxPlan plan;
  CHORUS_ASSIGN(plan.shader, require_shader("segment_softmax", variant));
  plan.grid = gpu::fold_grid(args.segments, capabilities.workgroups_per_dimension_max);
  return plan;
}

Status record_segment_softmax(WebgpuContext& context, const compute::SegmentSoftmaxArgs& args) {
  if (args.segments == 0 || args.count == 0) return {};
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const SegmentSoftmaxPlan plan, plan_segment_softmax(args, capabilities, context.forced_variant("segment_softmax")));
  const Params params{args.segments, args.count, {}};
  return context.device.dispatch({plan.shader,
                                  {{storage_of(args.values), gpu::Access::read, 0, 0},
                                   {storage_of(args.segment_starts), gpu::Access::read, 0, 0},
                                   {storage_of(args.out), gpu::Access::read_write, 0, 0}},
                                  as_params(params),
                                  plan.grid});
}

}  // namespace chorus::kernels
