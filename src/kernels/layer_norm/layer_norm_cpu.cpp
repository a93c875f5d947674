#include "kernels/layer_norm/layer_norm_cpu.h"

#include <cmath>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/layer_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_LAYER_NORM_CPU_ONCE
#define CHORUS_LAYER_NORM_CPU_ONCE
namespace chorus::kernels {

struct LayerNormRow {
  const float* weight;
  const float* bias;
  float epsilon;
  uint64_t cols;
};

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// Sum of x in f64.
double sum_of(const float* x, uint64_t count) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, hn::ScalableTag<double>> half;
  const uint64_t step = hn::Lanes(d64);
  auto sum = hn::Zero(d64);
  uint64_t at = 0;
  for (; at + step <= count; at += step) sum = hn::Add(sum, hn::PromoteTo(d64, hn::LoadU(half, x + at)));
  double total = hn::GetLane(hn::SumOfLanes(d64, sum));
  for (; at < count; ++at) total += x[at];
  return total;
}

// Sum of (x - mean)^2 in f64.
double squares_around(const float* x, double mean, uint64_t count) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, hn::ScalableTag<double>> half;
  const uint64_t step = hn::Lanes(d64);
  const auto middle = hn::Set(d64, mean);
  auto sum = hn::Zero(d64);
  uint64_t at = 0;
  for (; at + step <= count; at += step) {
    const auto away = hn::Sub(hn::PromoteTo(d64, hn::LoadU(half, x + at)), middle);
    sum = hn::MulAdd(away, away, sum);
  }
  double total = hn::GetLane(hn::SumOfLanes(d64, sum));
  for (; at < count; ++at) total += (x[at] - mean) * (x[at] - mean);
  return total;
}

void layer_norm_row(const float* x, const LayerNormRow& norm, float* out) {
  const Floats d;
  const double mean = sum_of(x, norm.cols) / static_cast<double>(norm.cols);
  const double variance = squares_around(x, mean, norm.cols) / static_cast<double>(norm.cols);
  const Vector factor = hn::Set(d, static_cast<float>(1 / std::sqrt(variance + norm.epsilon)));
  // The mean in two floats, so that a large one leaves no rounding of its own in the difference.
  const float mean_high = static_cast<float>(mean);
  const Vector high = hn::Set(d, mean_high), low = hn::Set(d, static_cast<float>(mean - mean_high));
  for_vectors(norm.cols, [&](const auto& load, const auto& store) HWY_ATTR {
    const Vector away = hn::Sub(hn::Sub(load(x), high), low);
    store(hn::MulAdd(hn::Mul(away, factor), load(norm.weight), load(norm.bias)), out);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(layer_norm_row);

Status layer_norm_cpu(CpuContext& context, const compute::LayerNormArgs& args) {
  const int64_t target = simd_target(context.forced_variant("layer_norm"));
  const Rows x(args.x);
  const MutableRows out(args.out);
  const LayerNormRow norm{floats(args.weight), floats(args.bias), args.epsilon, args.x.cols};
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) CHORUS_SIMD(layer_norm_row, target)(x.row(row), norm, out.row(row));
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
