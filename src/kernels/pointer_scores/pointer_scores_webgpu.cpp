#include "kernels/pointer_scores/pointer_scores_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t row_units, queries_offset, queries_stride, keys_offset, keys_stride, questions, first_option, options;
  float scale, temperature;
  uint32_t padding[2];
};
static_assert(sizeof(Params) == 48);

}  // namespace

std::vector<std::string> pointer_scores_variants(const gpu::Capabilities&) { return {"scalar", "vec4"}; }

Result<PointerScoresPlan> plan_pointer_scores(const compute::PointerScoresArgs& args, const gpu::Capabilities& capabilities,
                                              std::string_view forced) {
  const bool quads = quad_aligned(args.queries) && quad_aligned(args.keys);
  CHORUS_ASSIGN(const std::string variant,
                pick_variant("pointer_scores", forced, quads ? "vec4" : "scalar", capabilities, pointer_scores_variants));
  if (!quads && variant != "scalar") {
    return make_error(ErrorCode::unsupported,
                      "pointer_scores: variant " + variant + " needs rows that start at multiples of four elements");
  }
  const compute::View scores{args.scores, 0, args.keys.rows, 1, 1};
  CHORUS_TRY(require_other_buffer("pointer_scores", scores, {args.queries.buffer, args.keys.buffer, args.question_of_option}));
  // Every option may ask for any question, so the questions are never sliced.
  if (window_bytes(args.queries, args.queries.rows) + capabilities.storage_offset_alignment > capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded,
                      "pointer_scores: " + std::to_string(args.queries.rows) + " questions do not fit one storage binding");
  }
  PointerScoresPlan plan;
  plan.width = variant == "scalar" ? 1 : 4;
  CHORUS_ASSIGN(plan.shader, require_shader("pointer_scores", variant));
  CHORUS_ASSIGN(plan.slices, slice_rows(args.keys.rows, {args.keys, scores}, "pointer_scores", capabilities));
  return plan;
}

Status record_pointer_scores(WebgpuContext& context, const compute::PointerScoresArgs& args) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  CHORUS_ASSIGN(const PointerScoresPlan plan, plan_pointer_scores(args, capabilities, context.forced_variant("pointer_scores")));
  for (const RowSlice& slice : plan.slices) {
    const RowWindow queries = bind_rows(args.queries, {0, args.queries.rows}, gpu::Access::read, capabilities);
    const RowWindow keys = bind_rows(args.keys, slice, gpu::Access::read, capabilities);
    const Params params{args.keys.cols / plan.width,
                        queries.offset / plan.width,
                        args.queries.stride / plan.width,
                        keys.offset / plan.width,
                        args.keys.stride / plan.width,
                        args.queries.rows,
                        slice.first,
                        slice.count,
                        args.scale,
                        args.temperature,
                        {}};
    CHORUS_TRY(context.device.dispatch({plan.shader,
                                        {queries.binding,
                                         keys.binding,
                                         {storage_of(args.question_of_option), gpu::Access::read, 0, 0},
                                         {storage_of(args.scores), gpu::Access::read_write, 0, 0}},
                                        as_params(params),
                                        gpu::fold_grid(slice.count, capabilities.workgroups_per_dimension_max)}));
  }
  return {};
}

}  // namespace chorus::kernels
