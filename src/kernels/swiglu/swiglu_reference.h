// Float64 twin of swiglu: dense [rows, 2 * width] input (gate | up), [rows, width] result.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

inline std::vector<double> reference_swiglu(std::span<const float> gate_up, uint32_t rows, uint32_t width) {
  std::vector<double> out(static_cast<size_t>(rows) * width);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t col = 0; col < width; ++col) {
      const double gate = gate_up[row * 2 * width + col];
      const double up = gate_up[row * 2 * width + width + col];
      out[row * width + col] = gate / (1 + std::exp(-gate)) * up;
    }
  }
  return out;
}

}  // namespace chorus::kernels
