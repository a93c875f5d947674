#include "backends/webgpu/operations.h"

#if __has_include("kernels/embed/embed_webgpu.h")
#include "kernels/embed/embed_webgpu.h"
#define CHORUS_HAS_EMBED 1
#endif
#if __has_include("kernels/linear/linear_webgpu.h")
#include "kernels/linear/linear_webgpu.h"
#define CHORUS_HAS_LINEAR 1
#endif
#if __has_include("kernels/rms_norm/rms_norm_webgpu.h")
#include "kernels/rms_norm/rms_norm_webgpu.h"
#define CHORUS_HAS_RMS_NORM 1
#endif
#if __has_include("kernels/gated_rms_norm/gated_rms_norm_webgpu.h")
#include "kernels/gated_rms_norm/gated_rms_norm_webgpu.h"
#define CHORUS_HAS_GATED_RMS_NORM 1
#endif
#if __has_include("kernels/swiglu/swiglu_webgpu.h")
#include "kernels/swiglu/swiglu_webgpu.h"
#define CHORUS_HAS_SWIGLU 1
#endif
#if __has_include("kernels/causal_conv/causal_conv_webgpu.h")
#include "kernels/causal_conv/causal_conv_webgpu.h"
#define CHORUS_HAS_CAUSAL_CONV 1
#endif
#if __has_include("kernels/gated_delta/gated_delta_webgpu.h")
#include "kernels/gated_delta/gated_delta_webgpu.h"
#define CHORUS_HAS_GATED_DELTA 1
#endif
#if __has_include("kernels/qk_norm_rope/qk_norm_rope_webgpu.h")
#include "kernels/qk_norm_rope/qk_norm_rope_webgpu.h"
#define CHORUS_HAS_QK_NORM_ROPE 1
#endif
#if __has_include("kernels/attention/attention_webgpu.h")
#include "kernels/attention/attention_webgpu.h"
#define CHORUS_HAS_ATTENTION 1
#endif
#if __has_include("kernels/gather_rows/gather_rows_webgpu.h")
#include "kernels/gather_rows/gather_rows_webgpu.h"
#define CHORUS_HAS_GATHER_ROWS 1
#endif
#if __has_include("kernels/pointer_scores/pointer_scores_webgpu.h")
#include "kernels/pointer_scores/pointer_scores_webgpu.h"
#define CHORUS_HAS_POINTER_SCORES 1
#endif
#if __has_include("kernels/segment_softmax/segment_softmax_webgpu.h")
#include "kernels/segment_softmax/segment_softmax_webgpu.h"
#define CHORUS_HAS_SEGMENT_SOFTMAX 1
#endif

namespace chorus::backends {
namespace {

[[maybe_unused]] Error missing(std::string_view operation) {
  return make_error(ErrorCode::unsupported, "operation " + std::string(operation) + " has no webgpu kernel yet");
}
[[maybe_unused]] std::vector<std::string> no_variants(const gpu::Capabilities&) { return {}; }

}  // namespace

const std::vector<Operation>& webgpu_operations() {
  static const std::vector<Operation> operations = {
#ifdef CHORUS_HAS_EMBED
      {"embed", kernels::embed_variants},
#else
      {"embed", no_variants},
#endif
#ifdef CHORUS_HAS_LINEAR
      {"linear", kernels::linear_variants},
#else
      {"linear", no_variants},
#endif
#ifdef CHORUS_HAS_RMS_NORM
      {"rms_norm", kernels::rms_norm_variants},
#else
      {"rms_norm", no_variants},
#endif
#ifdef CHORUS_HAS_GATED_RMS_NORM
      {"gated_rms_norm", kernels::gated_rms_norm_variants},
#else
      {"gated_rms_norm", no_variants},
#endif
#ifdef CHORUS_HAS_SWIGLU
      {"swiglu", kernels::swiglu_variants},
#else
      {"swiglu", no_variants},
#endif
#ifdef CHORUS_HAS_CAUSAL_CONV
      {"causal_conv", kernels::causal_conv_variants},
#else
      {"causal_conv", no_variants},
#endif
#ifdef CHORUS_HAS_GATED_DELTA
      {"gated_delta", kernels::gated_delta_variants},
#else
      {"gated_delta", no_variants},
#endif
#ifdef CHORUS_HAS_QK_NORM_ROPE
      {"qk_norm_rope", kernels::qk_norm_rope_variants},
#else
      {"qk_norm_rope", no_variants},
#endif
#ifdef CHORUS_HAS_ATTENTION
      {"attention", kernels::attention_variants},
#else
      {"attention", no_variants},
#endif
#ifdef CHORUS_HAS_GATHER_ROWS
      {"gather_rows", kernels::gather_rows_variants},
#else
      {"gather_rows", no_variants},
#endif
#ifdef CHORUS_HAS_POINTER_SCORES
      {"pointer_scores", kernels::pointer_scores_variants},
#else
      {"pointer_scores", no_variants},
#endif
#ifdef CHORUS_HAS_SEGMENT_SOFTMAX
      {"segment_softmax", kernels::segment_softmax_variants},
#else
      {"segment_softmax", no_variants},
#endif
  };
  return operations;
}

#ifdef CHORUS_HAS_EMBED
Status record(kernels::WebgpuContext& context, const compute::EmbedArgs& args) { return kernels::record_embed(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::EmbedArgs&) { return missing("embed"); }
#endif
#ifdef CHORUS_HAS_LINEAR
Status record(kernels::WebgpuContext& context, const compute::LinearArgs& args) { return kernels::record_linear(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::LinearArgs&) { return missing("linear"); }
#endif
#ifdef CHORUS_HAS_RMS_NORM
Status record(kernels::WebgpuContext& context, const compute::RmsNormArgs& args) { return kernels::record_rms_norm(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::RmsNormArgs&) { return missing("rms_norm"); }
#endif
#ifdef CHORUS_HAS_GATED_RMS_NORM
Status record(kernels::WebgpuContext& context, const compute::GatedRmsNormArgs& args) {
  return kernels::record_gated_rms_norm(context, args);
}
#else
Status record(kernels::WebgpuContext&, const compute::GatedRmsNormArgs&) { return missing("gated_rms_norm"); }
#endif
#ifdef CHORUS_HAS_SWIGLU
Status record(kernels::WebgpuContext& context, const compute::SwigluArgs& args) { return kernels::record_swiglu(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::SwigluArgs&) { return missing("swiglu"); }
#endif
#ifdef CHORUS_HAS_CAUSAL_CONV
Status record(kernels::WebgpuContext& context, const compute::CausalConvArgs& args) { return kernels::record_causal_conv(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::CausalConvArgs&) { return missing("causal_conv"); }
#endif
#ifdef CHORUS_HAS_GATED_DELTA
Status record(kernels::WebgpuContext& context, const compute::GatedDeltaArgs& args) { return kernels::record_gated_delta(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::GatedDeltaArgs&) { return missing("gated_delta"); }
#endif
#ifdef CHORUS_HAS_QK_NORM_ROPE
Status record(kernels::WebgpuContext& context, const compute::QkNormRopeArgs& args) { return kernels::record_qk_norm_rope(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::QkNormRopeArgs&) { return missing("qk_norm_rope"); }
#endif
#ifdef CHORUS_HAS_ATTENTION
Status record(kernels::WebgpuContext& context, const compute::AttentionArgs& args) { return kernels::record_attention(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::AttentionArgs&) { return missing("attention"); }
#endif
#ifdef CHORUS_HAS_GATHER_ROWS
Status record(kernels::WebgpuContext& context, const compute::GatherRowsArgs& args) { return kernels::record_gather_rows(context, args); }
#else
Status record(kernels::WebgpuContext&, const compute::GatherRowsArgs&) { return missing("gather_rows"); }
#endif
#ifdef CHORUS_HAS_POINTER_SCORES
Status record(kernels::WebgpuContext& context, const compute::PointerScoresArgs& args) {
  return kernels::record_pointer_scores(context, args);
}
#else
Status record(kernels::WebgpuContext&, const compute::PointerScoresArgs&) { return missing("pointer_scores"); }
#endif
#ifdef CHORUS_HAS_SEGMENT_SOFTMAX
Status record(kernels::WebgpuContext& context, const compute::SegmentSoftmaxArgs& args) {
  return kernels::record_segment_softmax(context, args);
}
#else
Status record(kernels::WebgpuContext&, const compute::SegmentSoftmaxArgs&) { return missing("segment_softmax"); }
#endif

}  // namespace chorus::backends
