#include "backends/cpu/operation_table.h"

#include <algorithm>
#include <array>

#include "base/sanitizers.h"
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

std::vector<std::string> simd_variants(std::string_view operation) {
  if (operation == "gated_delta") return kernels::gated_delta_cpu_variants();
  return kernels::simd_targets();
}

// Of several instruction sets only the best: the others cut the same tasks, which is what ThreadSanitizer looks at, slowly.
void keep_best_target(std::vector<std::string>& variants) {
  const std::vector<std::string>& targets = kernels::simd_targets();
  std::erase_if(variants, [&](const std::string& variant) {
    return std::find(targets.begin() + 1, targets.end(), variant.substr(0, variant.find('.'))) != targets.end();
  });
}

}  // namespace

std::vector<std::string> cpu_variants(std::string_view operation) {
  if (operation == "gated_delta" || std::ranges::find(kSimdOperations, operation) != kSimdOperations.end()) {
    std::vector<std::string> variants = simd_variants(operation);
    if (kThreadSanitizer) keep_best_target(variants);
    return variants;
  }
  if (std::ranges::find(kPlainOperations, operation) != kPlainOperations.end()) return {"plain"};
  return {};
}

std::string default_simd_target() { return kernels::simd_targets().front(); }

}  // namespace chorus::backends
