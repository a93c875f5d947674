#include "backends/webgpu/operations.h"

#include "kernels/argmax/argmax_webgpu.h"
#include "kernels/attend/attend_webgpu.h"
#include "kernels/attention/attention_webgpu.h"
#include "kernels/causal_conv/causal_conv_webgpu.h"
#include "kernels/combine_routes/combine_routes_webgpu.h"
#include "kernels/embed/embed_webgpu.h"
#include "kernels/expert_ffn/expert_ffn_webgpu.h"
#include "kernels/gated_delta/gated_delta_webgpu.h"
#include "kernels/gated_rms_norm/gated_rms_norm_webgpu.h"
#include "kernels/gather_rows/gather_rows_webgpu.h"
#include "kernels/head_linear/head_linear_webgpu.h"
#include "kernels/layer_norm/layer_norm_webgpu.h"
#include "kernels/linear/linear_webgpu.h"
#include "kernels/pointer_scores/pointer_scores_webgpu.h"
#include "kernels/qk_norm_rope/qk_norm_rope_webgpu.h"
#include "kernels/rms_norm/rms_norm_webgpu.h"
#include "kernels/rope/rope_webgpu.h"
#include "kernels/router/router_webgpu.h"
#include "kernels/sample/sample_webgpu.h"
#include "kernels/segment_softmax/segment_softmax_webgpu.h"
#include "kernels/select_keys/select_keys_webgpu.h"
#include "kernels/swiglu/swiglu_webgpu.h"

namespace chorus::backends {

const std::vector<Operation>& webgpu_operations() {
  static const std::vector<Operation> operations = {
      {"embed", kernels::embed_variants},
      {"linear", kernels::linear_variants},
      {"rms_norm", kernels::rms_norm_variants},
      {"gated_rms_norm", kernels::gated_rms_norm_variants},
      {"swiglu", kernels::swiglu_variants},
      {"causal_conv", kernels::causal_conv_variants},
      {"gated_delta", kernels::gated_delta_variants},
      {"qk_norm_rope", kernels::qk_norm_rope_variants},
      {"attention", kernels::attention_variants},
      {"gather_rows", kernels::gather_rows_variants},
      {"pointer_scores", kernels::pointer_scores_variants},
      {"segment_softmax", kernels::segment_softmax_variants},
      {"layer_norm", kernels::layer_norm_variants},
      {"rope", kernels::rope_variants},
      {"head_linear", kernels::head_linear_variants},
      {"argmax", kernels::argmax_variants},
      {"attend", kernels::attend_variants},
      {"select_keys", kernels::select_keys_variants},
      {"router", kernels::router_variants},
      {"expert_ffn", kernels::expert_ffn_variants},
      {"combine_routes", kernels::combine_routes_variants},
      {"sample", kernels::sample_variants},
  };
  return operations;
}

Status record(kernels::WebgpuContext& context, const compute::EmbedArgs& args) { return kernels::record_embed(context, args); }
// A norm that the product cannot make on its way comes before it.
Status record(kernels::WebgpuContext& context, const compute::LinearArgs& args) {
  const compute::RowNorm& norm = args.norm;
  if (!norm.weight || kernels::linear_takes_norm(args, context.forced_variant("linear"))) return kernels::record_linear(context, args);
  CHORUS_TRY(kernels::record_rms_norm(context, {args.x, norm.weight, norm.epsilon, norm.form, norm.out}));
  return kernels::record_linear(context, {norm.out, args.weight, args.bias, args.out, args.store, {}});
}
Status record(kernels::WebgpuContext& context, const compute::RmsNormArgs& args) { return kernels::record_rms_norm(context, args); }
Status record(kernels::WebgpuContext& context, const compute::GatedRmsNormArgs& args) {
  return kernels::record_gated_rms_norm(context, args);
}
Status record(kernels::WebgpuContext& context, const compute::SwigluArgs& args) { return kernels::record_swiglu(context, args); }
Status record(kernels::WebgpuContext& context, const compute::CausalConvArgs& args) { return kernels::record_causal_conv(context, args); }
Status record(kernels::WebgpuContext& context, const compute::GatedDeltaArgs& args) { return kernels::record_gated_delta(context, args); }
Status record(kernels::WebgpuContext& context, const compute::QkNormRopeArgs& args) { return kernels::record_qk_norm_rope(context, args); }
Status record(kernels::WebgpuContext& context, const compute::AttentionArgs& args) { return kernels::record_attention(context, args); }
Status record(kernels::WebgpuContext& context, const compute::GatherRowsArgs& args) { return kernels::record_gather_rows(context, args); }
Status record(kernels::WebgpuContext& context, const compute::PointerScoresArgs& args) {
  return kernels::record_pointer_scores(context, args);
}
Status record(kernels::WebgpuContext& context, const compute::SegmentSoftmaxArgs& args) {
  return kernels::record_segment_softmax(context, args);
}
Status record(kernels::WebgpuContext& context, const compute::LayerNormArgs& args) { return kernels::record_layer_norm(context, args); }
Status record(kernels::WebgpuContext& context, const compute::RopeArgs& args) { return kernels::record_rope(context, args); }
Status record(kernels::WebgpuContext& context, const compute::HeadLinearArgs& args) { return kernels::record_head_linear(context, args); }
Status record(kernels::WebgpuContext& context, const compute::ArgmaxArgs& args) { return kernels::record_argmax(context, args); }
Status record(kernels::WebgpuContext& context, const compute::AttendArgs& args) { return kernels::record_attend(context, args); }
Status record(kernels::WebgpuContext& context, const compute::SelectKeysArgs& args) { return kernels::record_select_keys(context, args); }
Status record(kernels::WebgpuContext& context, const compute::RouterArgs& args) { return kernels::record_router(context, args); }
Status record(kernels::WebgpuContext& context, const compute::ExpertFfnArgs& args) { return kernels::record_expert_ffn(context, args); }
Status record(kernels::WebgpuContext& context, const compute::CombineRoutesArgs& args) {
  return kernels::record_combine_routes(context, args);
}
Status record(kernels::WebgpuContext& context, const compute::SampleArgs& args) { return kernels::record_sample(context, args); }

}  // namespace chorus::backends
