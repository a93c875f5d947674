#include "backends/cpu/operation_table.h"

#include "kernels/common/cpu_targets.h"

namespace chorus::backends {

std::vector<std::string> cpu_variants(std::string_view operation) {
  for (std::string_view name : {"embed", "linear", "rms_norm", "gated_rms_norm", "swiglu", "causal_conv", "gated_delta", "qk_norm_rope",
                                "attention", "gather_rows", "pointer_scores", "segment_softmax", "copy"}) {
    if (name == operation) return std::string_view(name) == "linear" ? kernels::simd_targets() : std::vector<std::string>{"plain"};
  }
  return {};
}

std::string default_simd_target() { return kernels::simd_targets().front(); }

}  // namespace chorus::backends
