#include "kernels/qk_norm_rope/qk_norm_rope_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t head_dim, head_pitch, half, heads, norm_heads, rows, in_offset, in_stride;
  uint32_t cosine_offset, cosine_stride, sine_offset, sine_stride, out_offset, out_stride, copy_offset, copy_stride;
  uint32_t workgroups;
  float epsilon, weight_shift;
  uint32_t normed;
};
static_assert(sizeof(Params) == 80);

constexpr uint32_t kHeadsPerWorkgroup = 8;

bool can_use_quads(const compute::QkNormRopeArgs& args) {
  const bool queries = args.q_out.buffer == nullptr || (quad_aligned(args.q_gate) && quad_aligned(args.q_out));
  return queries && args.shape.head_dim % 4 == 0 && args.rotary_dim % 8 == 0 && quad_aligned(args.kv) && quad_aligned(args.cosine) &&
         quad_aligned(args.sine) && quad_aligned(args.k_out) && quad_aligned(args.v_out);
}

// What both dispatches of a slice share.
Params shared_params(const compute::QkNormRopeArgs& args, const QkNormRopePlan& plan, RowSlice slice, const RowWindow& cosine,
                     const RowWindow& sine, uint32_t heads) {
  Params params{};
  params.head_dim = args.shape.head_dim / plan.width;
  params.half = args.rotary_dim / 2 / plan.width;
  params.heads = heads;
  params.rows = slice.count;
  params.cosine_offset = cosine.offset / plan.width;
  params.cosine_stride = args.cosine.stride / plan.width;
  params.sine_offset = sine.offset / plan.width;
  params.sine_stride = args.sine.stride / plan.width;
  params.workgroups = (slice.count * heads + kHeadsPerWorkgroup - 1) / kHeadsPerWorkgroup;
  params.epsilon = args.epsilon;
  params.weight_shift = args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f;
  params.normed = args.normed ? 1 : 0;
  return params;
}

// Without a norm something else that is only read stands in for the weight.
gpu::Binding weight_binding(const compute::QkNormRopeArgs& args, const compute::Buffer* weight, const RowWindow& cosine) {
  if (!args.normed) return cosine.binding;
  return {storage_of(weight), gpu::Access::read, 0, 0};
}

Status dispatch_slice(WebgpuContext& context, const gpu::ShaderSource* shader, std::vector<gpu::Binding> bindings, const Params& params) {
  return context.device.dispatch({shader, std::move(bindings), as_params(params),
                                  gpu::fold_grid(params.workgroups, context.device.capabilities().workgroups_per_dimension_max)});
}

Status record_queries(WebgpuContext& context, const compute::QkNormRopeArgs& args, const QkNormRopePlan& plan, RowSlice slice) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow cosine = bind_rows(args.cosine, slice, gpu::Access::read, capabilities);
  const RowWindow sine = bind_rows(args.sine, slice, gpu::Access::read, capabilities);
  const RowWindow in = bind_rows(args.q_gate, slice, gpu::Access::read, capabilities);
  const RowWindow out = bind_rows(args.q_out, slice, gpu::Access::read_write, capabilities);
  Params params = shared_params(args, plan, slice, cosine, sine, args.shape.query_heads);
  params.head_pitch = args.gated ? 2 * params.head_dim : params.head_dim;
  params.norm_heads = params.heads;
  params.in_offset = in.offset / plan.width;
  params.in_stride = args.q_gate.stride / plan.width;
  params.out_offset = out.offset / plan.width;
  params.out_stride = args.q_out.stride / plan.width;
  return dispatch_slice(context, plan.queries,
                        {in.binding, weight_binding(args, args.q_weight, cosine), cosine.binding, sine.binding, out.binding}, params);
}

Status record_keys(WebgpuContext& context, const compute::QkNormRopeArgs& args, const QkNormRopePlan& plan, RowSlice slice) {
  const gpu::Capabilities& capabilities = context.device.capabilities();
  const RowWindow cosine = bind_rows(args.cosine, slice, gpu::Access::read, capabilities);
  const RowWindow sine = bind_rows(args.sine, slice, gpu::Access::read, capabilities);
  const RowWindow in = bind_rows(args.kv, slice, gpu::Access::read, capabilities);
  const RowWindow k_out = bind_rows(args.k_out, slice, gpu::Access::read_write, capabilities);
  const RowWindow v_out = bind_rows(args.v_out, slice, gpu::Access::read_write, capabilities);
  Params params = shared_params(args, plan, slice, cosine, sine, 2 * args.shape.kv_heads);
  params.head_pitch = params.head_dim;
  params.norm_heads = args.shape.kv_heads;
  params.in_offset = in.offset / plan.width;
  params.in_stride = args.kv.stride / plan.width;
  params.out_offset = k_out.offset / plan.width;
  params.out_stride = args.k_out.stride / plan.width;
  params.copy_offset = v_out.offset / plan.width;
  params.copy_stride = args.v_out.stride / plan.width;
  std::vector<gpu::Binding> bindings{in.binding, weight_binding(args, args.k_weight, cosine), cosine.binding, sine.binding, k_out.binding};
  if (!plan.one_cache) bindings.push_back(v_out.binding);
  return dispatch_slice(context, plan.keys, std::move(bindings), params);
}

}  // namespace

std::vector<std::string> qk_norm_rope_variants(const gpu::Capabilities&) { return {"scalar", "vec4"}; }

Result<QkNormRopePlan> plan_qk_norm_rope(const compute::QkNormRopeArgs& args, const gpu::Capabilities& capabilities,
                                         std::string_view forced) {
  const bool quads = can_use_quads(args);
  CHORUS_ASSIGN(const std::string variant,
                pick_variant("qk_norm_rope", forced, quads ? "vec4" : "scalar", qk_norm_rope_variants(capabilities)));
  if (!quads && variant != "scalar") {
    return make_error(ErrorCode::unsupported,
                      "qk_norm_rope: variant " + variant + " needs rows, heads and rotary halves that are multiples of four elements");
  }
  const auto inputs = {args.kv.buffer, args.k_weight, args.cosine.buffer, args.sine.buffer};
  CHORUS_TRY(require_other_buffer("qk_norm_rope", args.k_out, inputs));
  CHORUS_TRY(require_other_buffer("qk_norm_rope", args.v_out, inputs));
  QkNormRopePlan plan;
  plan.width = variant == "scalar" ? 1 : 4;
  plan.one_cache = args.k_out.buffer == args.v_out.buffer;
  CHORUS_ASSIGN(plan.keys, require_shader("qk_norm_rope", variant + (plan.one_cache ? "_cache" : "_keys")));
  if (args.q_out.buffer == nullptr) {
    CHORUS_ASSIGN(plan.slices,
                  slice_rows(args.kv.rows, {args.kv, args.k_out, args.v_out, args.cosine, args.sine}, "qk_norm_rope", capabilities));
  } else {
    CHORUS_TRY(require_other_buffer("qk_norm_rope", args.q_out, {args.q_gate.buffer, args.q_weight, args.cosine.buffer, args.sine.buffer}));
    CHORUS_ASSIGN(plan.queries, require_shader("qk_norm_rope", variant + "_queries"));
    CHORUS_ASSIGN(plan.slices, slice_rows(args.kv.rows, {args.kv, args.k_out, args.v_out, args.cosine, args.sine, args.q_gate, args.q_out},
                                          "qk_norm_rope", capabilities));
  }
  const uint64_t storage_bytes = args.k_out.buffer ? args.k_out.buffer->bytes() : 0;
  if (plan.one_cache && storage_bytes > capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "qk_norm_rope: keys and values share a buffer of " + std::to_string(storage_bytes) +
                                                     " bytes, more than one storage binding holds");
  }
  return plan;
}

Status record_qk_norm_rope(WebgpuContext& context, const compute::QkNormRopeArgs& args) {
  CHORUS_ASSIGN(const QkNormRopePlan plan, plan_qk_norm_rope(args, context.device.capabilities(), context.forced_variant("qk_norm_rope")));
  for (const RowSlice& slice : plan.slices) {
    if (plan.queries) CHORUS_TRY(record_queries(context, args, plan, slice));
    CHORUS_TRY(record_keys(context, args, plan, slice));
  }
  return {};
}

}  // namespace chorus::kernels
