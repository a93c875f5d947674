// Twin of gather_rows on plain vectors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

// x: [x_rows, cols]; the result is [indices.size(), cols].
inline std::vector<double> gather_rows_reference(std::span<const float> x, std::span<const uint32_t> indices, uint32_t cols) {
  std::vector<double> out;
  out.reserve(indices.size() * cols);
  for (const uint32_t index : indices) {
    for (uint32_t col = 0; col < cols; ++col) out.push_back(x[static_cast<size_t>(index) * cols + col]);
  }
  return out;
}

}  // namespace chorus::kernels
