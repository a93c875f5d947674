#include "kernels/qk_norm_rope/qk_norm_rope_webgpu.h"

namespace chorus::kernels {
namespace {

struct Params {
  uint32_t head_dim, half, query_heads, kv_heads, rows, q_offset, q_stride, q_pitch;
  uint32_t kv_offset, kv_stride, cosine_offset, cosine_stride, sine_offset, sine_stride, q_out_offset, q_out_stride;
  uint32_t k_out_offset, k_out_stride, v_out_offset, v_out_stride, workgroups;
  float epsilon, weight_shift;
  uint32_t norm;
};
static_assert(sizeof(Params) == 96);

constexpr uint32_t kHeadsPerWorkgroup = 8;

bool can_use_quads(const compute::QkNormRopeArgs& args) {
  const bool queries = args.q_out.buffer == nullptr || (quad_aligned(args.q_gate) && quad_aligned(args.q_out));
  return queries && args.shape.head_dim % 4 == 0 && args.rotary_dim % 8 == 0 && quad_aligned(args.kv) && quad_aligned(args.cosine) &&
         quad_aligned(args.sine) && quad_aligned(args.k_out) && quad_aligned(args.v_out);
}

// One dispatch over a slice of rows: the bindings of an input and of the tables, then what queries and keys add.
class Recording {
 public:
  Recording(WebgpuContext& context, const compute::QkNormRopeArgs& args, const QkNormRopePlan& plan, RowSlice slice)
      : context_(context), args_(args), plan_(plan), slice_(slice) {
    const RowWindow cosine = bind(args.cosine, gpu::Access::read), sine = bind(args.sine, gpu::Access::read);
    tables_ = {cosine.binding, sine.binding};
    params_.head_dim = units(args.shape.head_dim);
    params_.half = units(args.rotary_dim / 2);
    params_.rows = slice.count;
    params_.cosine_offset = units(cosine.offset);
    params_.cosine_stride = units(args.cosine.stride);
    params_.sine_offset = units(sine.offset);
    params_.sine_stride = units(args.sine.stride);
    params_.epsilon = args.epsilon;
    params_.weight_shift = args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f;
    params_.norm = static_cast<uint32_t>(args.norm);
  }

  void add_queries() {
    const RowWindow in = bind(args_.q_gate, gpu::Access::read), out = bind(args_.q_out, gpu::Access::read_write);
    params_.query_heads = args_.shape.query_heads;
    params_.q_offset = units(in.offset);
    params_.q_stride = units(args_.q_gate.stride);
    params_.q_pitch = args_.gated ? 2 * params_.head_dim : params_.head_dim;
    params_.q_out_offset = units(out.offset);
    params_.q_out_stride = units(args_.q_out.stride);
    input_ = in.binding;
    rest_.insert(rest_.end(), {weight(args_.q_weight), out.binding});
  }

  void add_keys() {
    const RowWindow in = bind(args_.kv, gpu::Access::read);
    const RowWindow k_out = bind(args_.k_out, gpu::Access::read_write), v_out = bind(args_.v_out, gpu::Access::read_write);
    params_.kv_heads = args_.shape.kv_heads;
    params_.kv_offset = units(in.offset);
    params_.kv_stride = units(args_.kv.stride);
    params_.k_out_offset = units(k_out.offset);
    params_.k_out_stride = units(args_.k_out.stride);
    params_.v_out_offset = units(v_out.offset);
    params_.v_out_stride = units(args_.v_out.stride);
    input_ = in.binding;  // with queries: the same buffer, bound whole
    rest_.insert(rest_.end(), {weight(args_.k_weight), k_out.binding});
    if (!plan_.one_cache) rest_.push_back(v_out.binding);
  }

  Status dispatch(const gpu::ShaderSource* shader) {
    const uint32_t heads = params_.query_heads + 2 * params_.kv_heads;
    params_.workgroups = (slice_.count * heads + kHeadsPerWorkgroup - 1) / kHeadsPerWorkgroup;
    std::vector<gpu::Binding> bindings{input_};
    bindings.insert(bindings.end(), tables_.begin(), tables_.end());
    bindings.insert(bindings.end(), rest_.begin(), rest_.end());
    return context_.device.dispatch({shader, std::move(bindings), as_params(params_),
                                     gpu::fold_grid(params_.workgroups, context_.device.capabilities().workgroups_per_dimension_max)});
  }

 private:
  uint32_t units(uint32_t elements) const { return elements / plan_.width; }
  RowWindow bind(const compute::View& view, gpu::Access access) const {
    return bind_rows(view, slice_, access, context_.device.capabilities());
  }
  // Without a norm something else that is only read stands in for the weight.
  gpu::Binding weight(const compute::Buffer* buffer) const {
    return buffer ? gpu::Binding{storage_of(buffer), gpu::Access::read, 0, 0} : tables_.front();
  }

  WebgpuContext& context_;
  const compute::QkNormRopeArgs& args_;
  const QkNormRopePlan& plan_;
  RowSlice slice_;
  Params params_{};
  gpu::Binding input_;
  std::vector<gpu::Binding> tables_, rest_;
};

bool writes_to(const compute::Buffer* buffer, const compute::QkNormRopeArgs& args) {
  return buffer != nullptr && (buffer == args.q_out.buffer || buffer == args.k_out.buffer || buffer == args.v_out.buffer);
}

// Whether queries, keys and values lie in one buffer that one binding holds, and go to three others.
bool can_share_dispatch(const compute::QkNormRopeArgs& args, const gpu::Capabilities& capabilities) {
  constexpr uint32_t kStorageBuffers = 8;
  return args.q_gate.buffer == args.kv.buffer && args.kv.buffer->bytes() <= capabilities.storage_binding_bytes_max &&
         args.q_out.buffer != args.k_out.buffer && args.q_out.buffer != args.v_out.buffer && args.k_out.buffer != args.v_out.buffer &&
         !writes_to(args.k_weight, args) && !writes_to(args.q_weight, args) && capabilities.storage_buffers_max >= kStorageBuffers;
}

}  // namespace

std::vector<std::string> qk_norm_rope_variants(const gpu::Capabilities&) { return {"scalar", "vec4"}; }

Result<QkNormRopePlan> plan_qk_norm_rope(const compute::QkNormRopeArgs& args, const gpu::Capabilities& capabilities,
                                         std::string_view forced) {
  const bool quads = can_use_quads(args);
  CHORUS_ASSIGN(const std::string variant,
                pick_variant("qk_norm_rope", forced, quads ? "vec4" : "scalar", capabilities, qk_norm_rope_variants));
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
  const uint64_t cache_bytes = args.k_out.buffer->bytes();
  if (plan.one_cache && cache_bytes > capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "qk_norm_rope: keys and values share a buffer of " + std::to_string(cache_bytes) +
                                                     " bytes, more than one storage binding holds");
  }
  if (args.q_out.buffer == nullptr) {
    CHORUS_ASSIGN(plan.keys, require_shader("qk_norm_rope", variant + (plan.one_cache ? "_cache" : "_keys")));
    CHORUS_ASSIGN(plan.slices,
                  slice_rows(args.kv.rows, {args.kv, args.k_out, args.v_out, args.cosine, args.sine}, "qk_norm_rope", capabilities));
    return plan;
  }
  CHORUS_TRY(require_other_buffer("qk_norm_rope", args.q_out, {args.q_gate.buffer, args.q_weight, args.cosine.buffer, args.sine.buffer}));
  CHORUS_ASSIGN(plan.slices, slice_rows(args.kv.rows, {args.kv, args.k_out, args.v_out, args.cosine, args.sine, args.q_gate, args.q_out},
                                        "qk_norm_rope", capabilities));
  if (can_share_dispatch(args, capabilities)) {
    CHORUS_ASSIGN(plan.all, require_shader("qk_norm_rope", variant + "_all"));
    return plan;
  }
  CHORUS_ASSIGN(plan.queries, require_shader("qk_norm_rope", variant + "_queries"));
  CHORUS_ASSIGN(plan.keys, require_shader("qk_norm_rope", variant + (plan.one_cache ? "_cache" : "_keys")));
  return plan;
}

Status record_qk_norm_rope(WebgpuContext& context, const compute::QkNormRopeArgs& args) {
  CHORUS_ASSIGN(const QkNormRopePlan plan, plan_qk_norm_rope(args, context.device.capabilities(), context.forced_variant("qk_norm_rope")));
  for (const RowSlice& slice : plan.slices) {
    for (const gpu::ShaderSource* shader : {plan.all, plan.queries, plan.keys}) {
      if (!shader) continue;
      Recording recording(context, args, plan, slice);
      if (shader != plan.keys) recording.add_queries();
      if (shader != plan.queries) recording.add_keys();
      CHORUS_TRY(recording.dispatch(shader));
    }
  }
  return {};
}

}  // namespace chorus::kernels
