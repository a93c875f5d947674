#include "selftest/selftest.h"

namespace chorus::selftest {

const std::vector<OperationCases>& all_operations() {
  static const std::vector<OperationCases> operations = {
      {"embed", run_embed_cases},
      {"gather_rows", run_gather_rows_cases},
      {"causal_conv", run_causal_conv_cases},
      {"gated_delta", run_gated_delta_cases},
      {"gated_rms_norm", run_gated_rms_norm_cases},
      {"linear", run_linear_cases},
  };
  return operations;
}

}  // namespace chorus::selftest
