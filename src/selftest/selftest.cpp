#include "selftest/selftest.h"

namespace chorus::selftest {

const std::vector<OperationCases>& all_operations() {
  static const std::vector<OperationCases> operations = {
      {"embed", run_embed_cases},
      {"linear", run_linear_cases},
      {"rms_norm", run_rms_norm_cases},
      {"gated_rms_norm", run_gated_rms_norm_cases},
      {"swiglu", run_swiglu_cases},
      {"causal_conv", run_causal_conv_cases},
      {"gated_delta", run_gated_delta_cases},
      {"qk_norm_rope", run_qk_norm_rope_cases},
      {"attention", run_attention_cases},
      {"gather_rows", run_gather_rows_cases},
      {"pointer_scores", run_pointer_scores_cases},
      {"segment_softmax", run_segment_softmax_cases},
      {"layer_norm", run_layer_norm_cases},
      {"rope", run_rope_cases},
      {"head_linear", run_head_linear_cases},
      {"argmax", run_argmax_cases},
      {"attend", run_attend_cases},
      {"select_keys", run_select_keys_cases},
      {"router", run_router_cases},
      {"expert_ffn", run_expert_ffn_cases},
      {"combine_routes", run_combine_routes_cases},
      {"sample", run_sample_cases},
  };
  return operations;
}

}  // namespace chorus::selftest
