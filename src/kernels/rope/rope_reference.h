// Float64 twin of rope: dense [rows, heads * head_dim] input, angles [rows, rotary_dim / 2].
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

struct RopeReference {
  std::vector<double> out;        // [rows, heads * head_dim]
  std::vector<double> magnitude;  // |a cos| + |b sin| of the turning columns, 0 of those that are copied
};

// Sizes and form are read from `args`, nothing else.
inline RopeReference rope_reference(std::span<const float> x, std::span<const float> cosine, std::span<const float> sine, uint32_t rows,
                                    const compute::RopeArgs& args) {
  const size_t cols = size_t{args.heads} * args.head_dim, half = args.rotary_dim / 2;
  RopeReference result{{x.begin(), x.end()}, std::vector<double>(x.size(), 0)};
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < args.heads; ++head) {
      const size_t base = row * cols + head * args.head_dim + args.first;
      for (size_t i = 0; i < half; ++i) {
        const bool halves = args.form == compute::RopeForm::halves;
        const size_t at_a = base + (halves ? i : 2 * i), at_b = base + (halves ? i + half : 2 * i + 1);
        const double a = x[at_a], b = x[at_b], c = cosine[row * half + i], s = sine[row * half + i];
        result.out[at_a] = a * c - b * s;
        result.out[at_b] = b * c + a * s;
        result.magnitude[at_a] = std::abs(a * c) + std::abs(b * s);
        result.magnitude[at_b] = std::abs(b * c) + std::abs(a * s);
      }
    }
  }
  return result;
}

}  // namespace chorus::kernels
