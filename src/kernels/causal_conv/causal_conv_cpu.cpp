// Vectorised over channels. The weights [channels, 4] are turned to [4, channels] once per call, so that a vector of channels reads its
// taps as vectors.
#include "kernels/causal_conv/causal_conv_cpu.h"

#include <algorithm>
#include <vector>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_conv/causal_conv_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// taps: the input rows t-3 .. t; weights: [4][channels].
void convolve_row(const float* const* taps, const float* weights, uint64_t channels, float* out) {
  const Floats d;
  for_vectors(channels, [&](const auto& load, const auto& store) HWY_ATTR {
    Vector sum = hn::Mul(load(weights), load(taps[0]));
    for (uint64_t tap = 1; tap < 4; ++tap) sum = hn::MulAdd(load(weights + tap * channels), load(taps[tap]), sum);
    store(silu(d, sum), out);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {
namespace {

HWY_EXPORT(convolve_row);

constexpr int64_t kHistory = 3;

// Input row t of a sequence; the rows before its start are the history's.
const float* input_row(const Rows& x, const float* history, uint64_t channels, uint64_t start, int64_t t) {
  return t < 0 ? history + static_cast<uint64_t>(t + kHistory) * channels : x.row(start + static_cast<uint64_t>(t));
}

// The first sequence that ends behind `row`; the sequences tile the rows.
size_t sequence_of(const std::vector<compute::SequenceSpan>& spans, uint64_t row) {
  const auto found = std::ranges::partition_point(spans, [row](const auto& span) { return uint64_t{span.start} + span.length <= row; });
  return static_cast<size_t>(found - spans.begin());
}

}  // namespace

Status causal_conv_cpu(CpuContext& context, const compute::CausalConvArgs& args) {
  const int64_t target = simd_target(context.forced_variant("causal_conv"));
  const Rows x(args.x);
  const MutableRows out(args.out);
  const uint64_t channels = args.x.cols;
  const float* history = floats(args.history_in);
  CHORUS_ASSIGN(float* weights, context.scratch.acquire_floats("causal_conv", 4 * channels));
  for (uint64_t channel = 0; channel < channels; ++channel) {
    for (uint64_t tap = 0; tap < 4; ++tap) weights[tap * channels + channel] = floats(args.weight)[4 * channel + tap];
  }
  const auto& spans = args.sequences->spans;
  for_row_ranges(context.pool, args.x.rows, channels, [&](uint64_t first, uint64_t last, uint32_t) {
    size_t owner = sequence_of(spans, first);
    for (uint64_t row = first; row < last; ++row) {
      while (row >= uint64_t{spans[owner].start} + spans[owner].length) ++owner;
      const int64_t t = static_cast<int64_t>(row - spans[owner].start);
      const float* taps[4];
      for (int64_t tap = 0; tap < 4; ++tap) taps[tap] = input_row(x, history, channels, spans[owner].start, t - kHistory + tap);
      CHORUS_SIMD(convolve_row, target)(taps, weights, channels, out.row(row));
    }
  });
  if (!args.history_out) return {};
  const compute::SequenceSpan& span = args.sequences->spans.front();
  for (int64_t row = 0; row < kHistory; ++row) {
    const float* source = input_row(x, history, channels, span.start, static_cast<int64_t>(span.length) - kHistory + row);
    std::copy_n(source, channels, floats(args.history_out) + static_cast<uint64_t>(row) * channels);
  }
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
