#include "kernels/swiglu/swiglu_cpu.h"

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu/swiglu_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

void swiglu_row(const float* gate, const float* up, uint64_t cols, float* out) {
  const Floats d;
  for_vectors(cols, [&](const auto& load, const auto& store) HWY_ATTR { store(hn::Mul(silu(d, load(gate)), load(up)), out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(swiglu_row);

Status swiglu_cpu(CpuContext& context, const compute::SwigluArgs& args) {
  const int64_t target = simd_target(context.forced_variant("swiglu"));
  const Rows gate_up(args.gate_up);
  const MutableRows out(args.out);
  const uint64_t cols = args.out.cols;
  for_row_ranges(context.pool, args.out.rows, cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row)
      CHORUS_SIMD(swiglu_row, target)(gate_up.row(row), gate_up.row(row) + cols, cols, out.row(row));
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
