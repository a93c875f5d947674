// Twin of argmax on a dense matrix.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

inline std::vector<uint32_t> argmax_reference(std::span<const float> x, uint32_t rows, uint32_t cols) {
  std::vector<uint32_t> indices;
  for (size_t row = 0; row < rows; ++row) {
    const std::span<const float> values = x.subspan(row * cols, cols);
    uint32_t best = 0;
    bool nan = false;
    for (uint32_t col = 0; col < cols; ++col) {
      nan |= std::isnan(values[col]);
      if (values[col] > values[best]) best = col;
    }
    indices.push_back(nan ? UINT32_MAX : best);
  }
  return indices;
}

}  // namespace chorus::kernels
