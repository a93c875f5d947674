// Twin of head_linear in float64 on plain vectors, with the sum of magnitudes that error bounds are made of.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

struct HeadLinearShape {
  size_t rows = 0, heads = 0, cols = 0, depth = 0;  // cols, depth: of one head
  size_t x_cols = 0, x_head_stride = 0;
};

struct HeadLinearReference {
  std::vector<double> out;        // [rows, heads * cols]
  std::vector<double> magnitude;  // sum_k |x w|
};

// x: [rows, x_cols]; weight: [heads * cols, depth], as stored (rounded to its type).
inline HeadLinearReference head_linear_reference(std::span<const float> x, std::span<const double> weight, const HeadLinearShape& shape) {
  HeadLinearReference result;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t n = 0; n < shape.heads * shape.cols; ++n) {
      const size_t x_at = row * shape.x_cols + n / shape.cols * shape.x_head_stride;
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < shape.depth; ++k) {
        const double product = x[x_at + k] * weight[n * shape.depth + k];
        sum += product;
        magnitude += std::abs(product);
      }
      result.out.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

}  // namespace chorus::kernels
