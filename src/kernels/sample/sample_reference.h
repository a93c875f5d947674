// Float64 twin of sample: sorts everything, and says which tokens a correct implementation with f32 exponentials may draw.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

// Philox 4x32 with 10 rounds.
inline std::array<uint32_t, 4> philox_reference(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product_0 = 0xD2511F53ull * counter[0], product_1 = 0xCD9E8D57ull * counter[2];
    const auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
    const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
    counter = {high(product_1) ^ counter[1] ^ key[0], low(product_1), high(product_0) ^ counter[3] ^ key[1], low(product_0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

class SampleReference {
 public:
  SampleReference(std::span<const float> logits, const compute::SampleRow& row) : row_(row), order_(logits.size()) {
    if (std::any_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); })) {
      order_.clear();
      return;
    }
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    u_ = philox_reference({row.step, 0, 0, 0}, {row.seed_low, row.seed_high})[0] * 0x1p-32;
    sums_.push_back(0);
    for (const uint32_t token : order_) {
      // Equal logits first: two infinities have no difference.
      const double exponent = logits[token] == logits[order_[0]]
                                  ? 0
                                  : (static_cast<double>(logits[token]) - logits[order_[0]]) / static_cast<double>(row.temperature);
      const double weight = std::exp(exponent);
      weights_.push_back(weight);
      sums_.push_back(sums_.back() + weight);
      // f32: subtraction 0.5 and division 2.5 units of |exponent|, exp 3 + 2 |exponent| units (WGSL); and the unit of the integer sums.
      doubts_.push_back(weight > 0 ? (3 + 5 * std::abs(exponent)) * 0x1p-23 : 0);
      doubt_ += weight * doubts_.back() + 0x1p-36;
    }
  }

  // What float64 draws.
  uint32_t token() const {
    if (order_.empty()) return UINT32_MAX;
    const size_t kept = kept_tokens(0);
    size_t at = 0;
    while (at + 1 < kept && !(sums_[at + 1] > u_ * sums_[kept])) ++at;
    return order_[at];
  }

  // Whether `token` is what some choice of weights within their error bounds leads to.
  bool allows(uint32_t token) const {
    if (order_.empty()) return token == UINT32_MAX;
    const size_t at = static_cast<size_t>(std::find(order_.begin(), order_.end(), token) - order_.begin());
    const size_t fewest = kept_tokens(-1), most = kept_tokens(1);
    return at < most && sums_[at + 1] > u_ * sums_[fewest] - 2 * doubt_ && sums_[at] <= u_ * sums_[most] + 2 * doubt_;
  }

  double doubt() const { return doubt_ / sums_.back(); }

 private:
  // The length of the kept beginning; side -1 and 1: the shortest and the longest within the error bounds.
  size_t kept_tokens(int side) const {
    size_t kept = order_.size();
    if (row_.top_k > 0) kept = std::min<size_t>(kept, row_.top_k);
    if (row_.top_p < 1) {
      const double wanted = row_.top_p * sums_[kept] + side * 2 * doubt_;
      size_t count = 1;
      while (count < kept && sums_[count] < wanted) ++count;
      kept = count;
    }
    size_t probable = 1;
    while (probable < kept && weights_[probable] >= row_.min_p * (1 - side * doubts_[probable])) ++probable;
    return probable;
  }

  compute::SampleRow row_;
  std::vector<uint32_t> order_;
  std::vector<double> weights_;
  std::vector<double> sums_;    // sums_[n]: of the first n weights
  std::vector<double> doubts_;  // relative error of a weight
  double doubt_ = 0;            // of a sum
  double u_ = 0;
};

}  // namespace chorus::kernels
