#include "kernels/sample/sample_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr std::string_view kKernel = "sample";
// Histogram and pick cost a workgroup some microseconds, whatever its piece; a device with many units wants many workgroups.
constexpr uint32_t kPiece = 2048;
constexpr uint32_t kSoftwarePiece = 131072;
constexpr uint32_t kSliceRows = 128;                    // 4.5 MiB of histograms
constexpr uint32_t kStateWords = 16;                    // before the largest logits of the pieces
constexpr uint64_t kHistogramBytes = 3 * 3 * 1024 * 4;  // three that rotate, three words a bin

Status record_slice(WebgpuContext& context, const compute::SampleArgs& args, const SamplePlan& plan, RowSlice slice) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow logits = bind_rows(args.logits, slice, gpu::Access::read, capabilities);
  CHORUS_ASSIGN(const gpu::Binding rows, bind_buffer(args.rows, gpu::Access::read, capabilities));
  CHORUS_ASSIGN(const gpu::Binding indices, bind_buffer(args.indices, gpu::Access::read_write, capabilities));
  gpu::Binding states, histograms;
  states.access = histograms.access = gpu::Access::read_write;
  CHORUS_ASSIGN(states.storage, context.scratch.acquire("sample states", plan.state_bytes * slice.count));
  CHORUS_ASSIGN(histograms.storage, context.scratch.acquire("sample histograms", plan.histogram_bytes * slice.count));
  SampleParams params;
  params.rows = slice.count;
  params.vocabulary = args.logits.cols;
  params.logits_offset = logits.offset;
  params.logits_stride = args.logits.stride;
  params.first_row = slice.first;
  params.piece = plan.piece;
  params.row_words = static_cast<uint32_t>(plan.state_bytes / 4);
  params.row_pieces = plan.pieces;
  for (params.stage = 0; params.stage < kSampleStages; ++params.stage) {
    params.pieces = params.stage + 1 < kSampleStages ? plan.pieces : 1;
    gpu::Dispatch dispatch;
    dispatch.shader = params.stage == 0 ? plan.largest : plan.step;
    dispatch.bindings = {logits.binding, states, histograms};
    if (params.stage > 0) dispatch.bindings.insert(dispatch.bindings.end(), {rows, indices});
    dispatch.params = as_params(params);
    dispatch.grid = gpu::fold_grid(uint64_t{slice.count} * params.pieces, capabilities.workgroups_per_dimension_max);
    CHORUS_TRY(context.device.dispatch(dispatch));
  }
  return {};
}

}  // namespace

std::vector<std::string> sample_variants(const gpu::Capabilities&) { return {"base"}; }

Result<SamplePlan> plan_sample(const compute::SampleArgs& args, const gpu::Capabilities& capabilities, std::string_view forced) {
  CHORUS_TRY(pick_variant(kKernel, forced, "base", capabilities, sample_variants));
  CHORUS_TRY(require_other_buffer(kKernel, {args.indices, 0, 1, 1, 1}, {args.logits.buffer, args.rows}));
  SamplePlan plan;
  CHORUS_ASSIGN(plan.largest, require_shader(kKernel, "largest"));
  CHORUS_ASSIGN(plan.step, require_shader(kKernel, "step"));
  plan.piece = capabilities.software ? kSoftwarePiece : kPiece;
  plan.pieces = (args.logits.cols - 1) / plan.piece + 1;
  plan.state_bytes = (kStateWords + uint64_t{plan.pieces}) * 4;
  plan.histogram_bytes = kHistogramBytes;
  const uint64_t row_bytes = std::max(plan.histogram_bytes, plan.state_bytes);
  if (row_bytes > capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "sample: " + std::to_string(row_bytes) + " bytes of histograms, a binding holds " +
                                                     std::to_string(capabilities.storage_binding_bytes_max));
  }
  const uint32_t rows_max = static_cast<uint32_t>(std::min<uint64_t>(kSliceRows, capabilities.storage_binding_bytes_max / row_bytes));
  CHORUS_ASSIGN(const std::vector<RowSlice> slices, slice_rows(args.logits.rows, {args.logits}, kKernel, capabilities));
  for (const RowSlice& slice : slices) {
    for (uint32_t done = 0; done < slice.count; done += rows_max) {
      plan.slices.push_back({slice.first + done, std::min(rows_max, slice.count - done)});
    }
  }
  return plan;
}

Status record_sample(WebgpuContext& context, const compute::SampleArgs& args) {
  if (args.logits.rows == 0) return {};
  CHORUS_ASSIGN(const SamplePlan plan, plan_sample(args, context.device.capabilities(), context.forced_variant(kKernel)));
  for (const RowSlice& slice : plan.slices) CHORUS_TRY(record_slice(context, args, plan, slice));
  return {};
}

}  // namespace chorus::kernels
