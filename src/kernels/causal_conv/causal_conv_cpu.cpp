#include "kernels/causal_conv/causal_conv_cpu.h"

#include <cmath>

namespace chorus::kernels {
namespace {

constexpr int64_t kHistory = 3;

// Input row t of a sequence; the rows before its start are the history's.
const float* input_row(const Rows& x, const float* history, uint64_t channels, uint64_t start, int64_t t) {
  return t < 0 ? history + static_cast<uint64_t>(t + kHistory) * channels : x.row(start + static_cast<uint64_t>(t));
}

}  // namespace

Status causal_conv_cpu(CpuContext& context, const compute::CausalConvArgs& args) {
  const Rows x(args.x);
  const MutableRows out(args.out);
  const uint64_t channels = args.x.cols;
  const float* weight = floats(args.weight);
  const float* history = floats(args.history_in);
  for (const compute::SequenceSpan& span : args.sequences->spans) {
    for_row_ranges(context.pool, span.length, channels, [&](uint64_t first, uint64_t last, uint32_t) {
      for (uint64_t row = first; row < last; ++row) {
        const float* taps[4];
        for (int64_t tap = 0; tap < 4; ++tap) taps[tap] = input_row(x, history, channels, span.start, static_cast<int64_t>(row) - 3 + tap);
        float* target = out.row(span.start + row);
        for (uint64_t channel = 0; channel < channels; ++channel) {
          const float* w = weight + 4 * channel;
          const float sum = w[0] * taps[0][channel] + w[1] * taps[1][channel] + w[2] * taps[2][channel] + w[3] * taps[3][channel];
          target[channel] = sum / (1 + std::exp(-sum));
        }
      }
    });
  }
  if (!args.history_out) return {};
  const compute::SequenceSpan& span = args.sequences->spans.front();
  for (int64_t row = 0; row < kHistory; ++row) {
    const float* source = input_row(x, history, channels, span.start, static_cast<int64_t>(span.length) - kHistory + row);
    std::copy_n(source, channels, floats(args.history_out) + static_cast<uint64_t>(row) * channels);
  }
  return {};
}

}  // namespace chorus::kernels
