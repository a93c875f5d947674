#include "kernels/argmax/argmax_cpu.h"

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/argmax/argmax_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// One pass for the largest value and for NaN, a second up to the first place that holds it.
uint32_t argmax_row(const float* x, uint64_t cols) {
  const Floats d;
  Vector largest = hn::Set(d, x[0]);
  auto nan = hn::IsNaN(largest);
  uint64_t at = 0;
  for (; at + kLanes <= cols; at += kLanes) {
    const Vector value = hn::LoadU(d, x + at);
    nan = hn::Or(nan, hn::IsNaN(value));
    largest = hn::IfThenElse(hn::Gt(value, largest), value, largest);
  }
  if (!hn::AllFalse(d, nan)) return UINT32_MAX;
  HWY_ALIGN float lanes[kLanes];
  hn::Store(largest, d, lanes);
  float best = lanes[0];
  for (uint64_t lane = 1; lane < kLanes; ++lane) best = lanes[lane] > best ? lanes[lane] : best;
  for (; at < cols; ++at) {
    if (x[at] != x[at]) return UINT32_MAX;
    best = x[at] > best ? x[at] : best;
  }
  const Vector wanted = hn::Set(d, best);
  for (at = 0; at + kLanes <= cols; at += kLanes) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + at), wanted));
    if (lane >= 0) return static_cast<uint32_t>(at + static_cast<uint64_t>(lane));
  }
  while (x[at] != best) ++at;
  return static_cast<uint32_t>(at);
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(argmax_row);

Status argmax_cpu(CpuContext& context, const compute::ArgmaxArgs& args) {
  if (args.x.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("argmax"));
  const Rows x(args.x);
  uint32_t* out = reinterpret_cast<uint32_t*>(static_cast<CpuBuffer*>(args.indices)->data());
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) out[row] = CHORUS_SIMD(argmax_row, target)(x.row(row), args.x.cols);
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
