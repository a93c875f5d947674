#include "kernels/argmax/argmax_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "argmax";
constexpr uint32_t kPiece = 1024;         // 4 values an invocation
constexpr uint32_t kWholeColsMax = 8192;  // up to here a second dispatch costs more than it saves
constexpr uint64_t kBestBytes = 8;        // number and place

struct Params {
  uint32_t rows, cols, x_offset, x_stride, piece, pieces, first_row, unused;
};
static_assert(sizeof(Params) == 32);

}  // namespace

std::vector<std::string> argmax_variants(const gpu::Capabilities&) { return {"whole", "split"}; }

Result<ArgmaxPlan> plan_argmax(const compute::ArgmaxArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  const std::string_view chosen = args.x.cols <= kWholeColsMax ? "whole" : "split";
  CHORUS_ASSIGN(const std::string variant, pick_variant(kKernel, forced, chosen, capabilities, argmax_variants));
  ArgmaxPlan plan;
  plan.piece = variant == "whole" ? args.x.cols : std::min(kPiece, args.x.cols);
  plan.pieces = (args.x.cols - 1) / plan.piece + 1;
  CHORUS_ASSIGN(plan.first, require_shader(kKernel, variant == "whole" ? "whole" : "part"));
  if (variant != "whole") {
    CHORUS_ASSIGN(plan.merge, require_shader(kKernel, "merge"));
  }
  CHORUS_TRY(require_other_buffer(kKernel, {args.indices, 0, 1, 1, 1}, {args.x.buffer}));
  CHORUS_ASSIGN(std::vector<RowSlice> slices, slice_rows(args.x.rows, {args.x}, kKernel, capabilities));
  // The pieces of a slice must fit one binding, too.
  const uint64_t rows_max = std::max<uint64_t>(1, capabilities.storage_binding_bytes_max / (kBestBytes * plan.pieces));
  for (RowSlice slice : slices) {
    for (; plan.merge && slice.count > rows_max;
         slice.first += static_cast<uint32_t>(rows_max), slice.count -= static_cast<uint32_t>(rows_max))
      plan.slices.push_back({slice.first, static_cast<uint32_t>(rows_max)});
    plan.slices.push_back(slice);
  }
  return plan;
}

Status record_argmax(WebgpuContext& context, const compute::ArgmaxArgs& args) {
  if (args.x.rows == 0) return {};
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const ArgmaxPlan plan, plan_argmax(args, capabilities, context.forced_variant(kKernel)));
  CHORUS_ASSIGN(const gpu::Binding indices, bind_buffer(args.indices, gpu::Access::read_write, capabilities));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow x = bind_rows(args.x, slice, gpu::Access::read, capabilities);
    const Params params{slice.count, args.x.cols, x.offset, args.x.stride, plan.piece, plan.pieces, slice.first, 0};
    const uint64_t workgroups = uint64_t{slice.count} * plan.pieces;
    gpu::Binding target = indices;
    if (plan.merge) {
      CHORUS_ASSIGN(target.storage, context.scratch.acquire("argmax", workgroups * kBestBytes));
    }
    CHORUS_TRY(context.device.dispatch(
        {plan.first, {x.binding, target}, as_params(params), gpu::fold_grid(workgroups, capabilities.workgroups_per_dimension_max)}));
    if (!plan.merge) continue;
    const gpu::Binding best{target.storage, gpu::Access::read};
    CHORUS_TRY(context.device.dispatch(
        {plan.merge, {best, indices}, as_params(params), gpu::fold_grid(slice.count, capabilities.workgroups_per_dimension_max)}));
  }
  return {};
}

}  // namespace chorus::kernels
