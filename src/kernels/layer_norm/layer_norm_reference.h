// Float64 twin of layer_norm: dense [rows, cols] input, result in double, with the magnitudes that error bounds are made of.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

struct LayerNormReference {
  std::vector<double> out;        // [rows, cols]
  std::vector<double> magnitude;  // [rows, cols]: (|x| + mean |x|) * factor * |weight| + |bias|, what roundings are relative to
};

inline LayerNormReference layer_norm_reference(std::span<const float> x, uint32_t rows, uint32_t cols, std::span<const float> weight,
                                               std::span<const float> bias, double epsilon) {
  LayerNormReference result;
  for (size_t row = 0; row < rows; ++row) {
    const std::span<const float> in = x.subspan(row * cols, cols);
    double sum = 0, absolute = 0, squares = 0;
    for (const float value : in) {
      sum += value;
      absolute += std::abs(static_cast<double>(value));
    }
    const double mean = sum / cols;
    for (const float value : in) squares += (value - mean) * (value - mean);
    const double factor = 1 / std::sqrt(squares / cols + epsilon);
    for (size_t col = 0; col < cols; ++col) {
      const double w = weight[col], b = bias[col];
      result.out.push_back((in[col] - mean) * factor * w + b);
      result.magnitude.push_back((std::abs(static_cast<double>(in[col])) + absolute / cols) * factor * std::abs(w) + std::abs(b));
    }
  }
  return result;
}

}  // namespace chorus::kernels
