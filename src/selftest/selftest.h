// Known-answer cases of every operation, against float64 twins (kernels/<op>/<op>_reference.h). Used by the tests on every backend
// and by `chorus devices --self-test`. One file per operation: <op>_cases.cpp. Must not know: any backend's inside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compute/backend.h"

namespace chorus::selftest {

enum class CaseSet {
  quick,  // a few small shapes per variant: self-test on a user's machine, software adapters
  full,   // odd shapes: 0, 1, primes, one past a tile, past a grid dimension
};

struct CaseResult {
  std::string operation;
  std::string variant;
  std::string name;      // shape and data of the case
  double error = 0;      // largest error, in units of the tolerance's quantity
  double tolerance = 0;  // derived from input norms and types
  bool pass = false;     // false also for NaN, a touched sentinel or an Error
  std::string detail;    // why it failed
};

// Each runs its cases for every variant that the backend lists, leaves no variant forced, and never throws.
std::vector<CaseResult> run_embed_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_linear_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_rms_norm_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_gated_rms_norm_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_swiglu_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_causal_conv_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_gated_delta_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_qk_norm_rope_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_attention_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_gather_rows_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_pointer_scores_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_segment_softmax_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_router_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_expert_ffn_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_combine_routes_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_attend_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_select_keys_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_layer_norm_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_rope_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_head_linear_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_argmax_cases(compute::Backend& backend, CaseSet set);
std::vector<CaseResult> run_sample_cases(compute::Backend& backend, CaseSet set);

struct OperationCases {
  std::string_view operation;
  std::vector<CaseResult> (*run)(compute::Backend&, CaseSet);
};
const std::vector<OperationCases>& all_operations();

}  // namespace chorus::selftest
