// Float64 twin of the causal convolution (compute/ops.h, CausalConvArgs), on dense row-major data.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

struct CausalConvReference {
  std::vector<double> out;      // [rows, channels]
  std::vector<double> history;  // [3, channels]: the last three inputs of the last sequence, older history where it is shorter
  // Sum of |weight| |input| behind each element before SiLU: the scale of its rounding error. [rows, channels]
  std::vector<double> magnitude;
};

// x: [rows, channels]; weight: [channels, 4]; history: [3, channels], oldest first, before every sequence.
inline CausalConvReference causal_conv_reference(std::span<const float> x, std::span<const float> weight, std::span<const float> history,
                                                 uint32_t channels, std::span<const compute::SequenceSpan> spans) {
  CausalConvReference result;
  result.out.resize(x.size());
  result.magnitude.resize(x.size());
  result.history.assign(history.begin(), history.end());
  for (const compute::SequenceSpan& span : spans) {
    // Input of row t of this sequence; t in [-3, length).
    auto input = [&](int64_t t, uint32_t c) -> double {
      return t < 0 ? history[static_cast<size_t>(t + 3) * channels + c] : x[(span.start + static_cast<size_t>(t)) * channels + c];
    };
    for (int64_t t = 0; t < span.length; ++t) {
      for (uint32_t c = 0; c < channels; ++c) {
        double sum = 0, magnitude = 0;
        for (int64_t j = 0; j < 4; ++j) {
          const double product = weight[static_cast<size_t>(c) * 4 + static_cast<size_t>(j)] * input(t - 3 + j, c);
          sum += product;
          magnitude += std::fabs(product);
        }
        const size_t at = (span.start + static_cast<size_t>(t)) * channels + c;
        result.out[at] = sum / (1.0 + std::exp(-sum));
        result.magnitude[at] = magnitude;
      }
    }
    for (int64_t j = 0; j < 3; ++j) {
      for (uint32_t c = 0; c < channels; ++c) {
        result.history[static_cast<size_t>(j) * channels + c] = input(static_cast<int64_t>(span.length) - 3 + j, c);
      }
    }
  }
  return result;
}

}  // namespace chorus::kernels
