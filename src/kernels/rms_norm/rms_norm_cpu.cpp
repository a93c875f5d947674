#include "kernels/rms_norm/rms_norm_cpu.h"

#include <cmath>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

void norm_row(const float* x, const float* weight, float shift, float epsilon, uint64_t cols, float* out) {
  const Floats d;
  const double mean = sum_of_squares(x, cols) / static_cast<double>(cols);
  const Vector factor = hn::Set(d, static_cast<float>(1 / std::sqrt(mean + epsilon)));
  const Vector base = hn::Set(d, shift);
  for_vectors(cols, [&](const auto& load, const auto& store)
                        HWY_ATTR { store(hn::Mul(hn::Mul(load(x), factor), hn::Add(base, load(weight))), out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(norm_row);

Status rms_norm_cpu(CpuContext& context, const compute::RmsNormArgs& args) {
  const int64_t target = simd_target(context.forced_variant("rms_norm"));
  const Rows x(args.x);
  const MutableRows out(args.out);
  const float* weight = floats(args.weight);
  const float shift = args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f;
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      CHORUS_SIMD(norm_row, target)(x.row(row), weight, shift, args.epsilon, args.x.cols, out.row(row));
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
