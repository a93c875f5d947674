// A few values per question: plain, in f64.
#include "kernels/segment_softmax/segment_softmax_cpu.h"

#include <cmath>

namespace chorus::kernels {

Status segment_softmax_cpu(CpuContext&, const compute::SegmentSoftmaxArgs& args) {
  if (args.count == 0) return {};
  const float* values = floats(args.values);
  const uint32_t* starts = indices(args.segment_starts);
  float* out = floats(args.out);
  for (uint64_t segment = 0; segment < args.segments; ++segment) {
    const uint64_t last = std::min(starts[segment + 1], args.count);
    const uint64_t first = std::min<uint64_t>(starts[segment], last);
    if (first == last) continue;
    double maximum = values[first];
    for (uint64_t at = first; at < last; ++at) maximum = std::max<double>(maximum, values[at]);
    double sum = 0;
    for (uint64_t at = first; at < last; ++at) sum += std::exp(values[at] - maximum);
    for (uint64_t at = first; at < last; ++at) out[at] = static_cast<float>(std::exp(values[at] - maximum) / sum);
  }
  return {};
}

}  // namespace chorus::kernels
