// Float64 twin of rms_norm: dense [rows, cols] input, result in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

inline std::vector<double> reference_rms_norm(std::span<const float> x, uint32_t rows, uint32_t cols, std::span<const float> weight,
                                              float epsilon, compute::NormWeight form) {
  std::vector<double> out(static_cast<size_t>(rows) * cols);
  for (size_t row = 0; row < rows; ++row) {
    const float* in = x.data() + row * cols;
    double squares = 0;
    for (size_t col = 0; col < cols; ++col) squares += static_cast<double>(in[col]) * in[col];
    const double factor = 1 / std::sqrt(squares / cols + static_cast<double>(epsilon));
    for (size_t col = 0; col < cols; ++col) {
      const double scale = form == compute::NormWeight::one_plus ? 1 + static_cast<double>(weight[col]) : static_cast<double>(weight[col]);
      out[row * cols + col] = in[col] * factor * scale;
    }
  }
  return out;
}

}  // namespace chorus::kernels
