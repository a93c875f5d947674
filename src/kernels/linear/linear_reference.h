// Twin of linear in float64 on plain vectors, with the sum of magnitudes that error bounds are made of.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

struct LinearReference {
  std::vector<double> out;        // [rows, cols]
  std::vector<double> magnitude;  // [rows, cols]: sum_k |x w| + |bias| + |initial|
};

// x: [rows, depth]; weight: [cols, depth], as stored (rounded to its type); bias: [cols] or empty; initial: [rows, cols] or empty.
inline LinearReference linear_reference(std::span<const double> x, std::span<const double> weight, std::span<const double> bias,
                                        std::span<const double> initial, size_t rows, size_t cols, size_t depth) {
  LinearReference result;
  result.out.reserve(rows * cols);
  result.magnitude.reserve(rows * cols);
  for (size_t m = 0; m < rows; ++m) {
    for (size_t n = 0; n < cols; ++n) {
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < depth; ++k) {
        const double product = x[m * depth + k] * weight[n * depth + k];
        sum += product;
        magnitude += std::abs(product);
      }
      for (const std::span<const double> added :
           {bias.empty() ? bias : bias.subspan(n, 1), initial.empty() ? initial : initial.subspan(m * cols + n, 1)}) {
        if (added.empty()) continue;
        sum += added[0];
        magnitude += std::abs(added[0]);
      }
      result.out.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

}  // namespace chorus::kernels
