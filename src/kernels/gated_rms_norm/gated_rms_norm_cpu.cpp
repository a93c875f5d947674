#include "kernels/gated_rms_norm/gated_rms_norm_cpu.h"

#include <cmath>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_rms_norm/gated_rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// out may be x: every vector is read before it is written, after the sum was taken.
void gated_norm_head(const float* x, const float* gate, const float* weight, float epsilon, uint64_t dim, float* out) {
  const Floats d;
  const double mean = sum_of_squares(x, dim) / static_cast<double>(dim);
  const Vector factor = hn::Set(d, static_cast<float>(1 / std::sqrt(mean + epsilon)));
  for_vectors(dim, [&](const auto& load, const auto& store)
                       HWY_ATTR { store(hn::Mul(hn::Mul(hn::Mul(load(x), factor), load(weight)), silu(d, load(gate))), out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(gated_norm_head);

Status gated_rms_norm_cpu(CpuContext& context, const compute::GatedRmsNormArgs& args) {
  const int64_t target = simd_target(context.forced_variant("gated_rms_norm"));
  const Rows x(args.x), gate(args.gate);
  const MutableRows out(args.out);
  const float* weight = floats(args.weight);
  const uint64_t dim = args.head_dim;
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      for (uint64_t head = 0; head < args.x.cols; head += dim) {
        CHORUS_SIMD(gated_norm_head, target)(x.row(row) + head, gate.row(row) + head, weight, args.epsilon, dim, out.row(row) + head);
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
