#include "backends/cpu/operation_table.h"

#include <algorithm>
#include <array>

#include "kernels/common/cpu_targets.h"

namespace chorus::backends {
namespace {

constexpr std::array kSimdOperations = std::to_array<std::string_view>({
    "linear",
    "rms_norm",
    "gated_rms_norm",
    "swiglu",
    "causal_conv",
    "qk_norm_rope",
    "attention",
    "layer_norm",
    "rope",
    "head_linear",
    "argmax",
    "sample",
    "router",
    "expert_ffn",
    "combine_routes",
    "attend",
    "select_keys",
});
constexpr std::array<std::string_view, 5> kPlainOperations = {"embed", "gather_rows", "pointer_scores", "segment_softmax", "copy"};

}  // namespace

std::vector<std::string> cpu_variants(std::string_view operation) {
  if (operation == "gated_delta") return kernels::gated_delta_cpu_variants();
  if (std::ranges::find(kSimdOperations, operation) != kSimdOperations.end()) return kernels::simd_targets();
  if (std::ranges::find(kPlainOperations, operation) != kPlainOperations.end()) return {"plain"};
  return {};
}

std::string default_simd_target() { return kernels::simd_targets().front(); }

}  // namespace chorus::backends
