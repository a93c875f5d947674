// Float64 twin of segment_softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

// segment_starts: [segments + 1], ascending, the last equal to values.size(). An empty segment writes nothing.
inline std::vector<double> reference_segment_softmax(std::span<const float> values, std::span<const uint32_t> segment_starts) {
  std::vector<double> out(values.size());
  for (size_t segment = 0; segment + 1 < segment_starts.size(); ++segment) {
    const size_t first = segment_starts[segment], last = segment_starts[segment + 1];
    if (first == last) continue;
    double largest = values[first], sum = 0;
    for (size_t i = first; i < last; ++i) largest = std::max(largest, static_cast<double>(values[i]));
    for (size_t i = first; i < last; ++i) sum += out[i] = std::exp(values[i] - largest);
    for (size_t i = first; i < last; ++i) out[i] /= sum;
  }
  return out;
}

}  // namespace chorus::kernels
