// Float64 twin of combine_routes on dense matrices, with the sum of magnitudes that error bounds are made of.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

struct CombineRoutesReference {
  std::vector<double> out;        // [rows, cols]
  std::vector<double> magnitude;  // [rows, cols]
};

// routed: [rows * top_k, cols]; weights: [rows * top_k]; shared: [rows, cols] or empty; gate: [rows] or empty; initial: [rows, cols].
inline CombineRoutesReference reference_combine_routes(std::span<const float> routed, std::span<const float> weights,
                                                       std::span<const float> shared, std::span<const float> gate,
                                                       std::span<const float> initial, size_t top_k, size_t cols) {
  CombineRoutesReference result;
  for (size_t at = 0; at < initial.size(); ++at) {
    const size_t row = at / cols, col = at % cols;
    double sum = initial[at], magnitude = std::abs(sum);
    const auto add = [&](double product) {
      sum += product;
      magnitude += std::abs(product);
    };
    for (size_t route = row * top_k; route < (row + 1) * top_k; ++route)
      add(static_cast<double>(weights[route]) * routed[route * cols + col]);
    const double factor = gate.empty() ? 1 : 1 / (1 + std::exp(-static_cast<double>(gate[row])));
    if (!shared.empty()) add(factor * shared[at]);
    result.out.push_back(sum);
    result.magnitude.push_back(magnitude);
  }
  return result;
}

}  // namespace chorus::kernels
