#include "kernels/qk_norm_rope/qk_norm_rope_cpu.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/qk_norm_rope/qk_norm_rope_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_QK_NORM_ROPE_CPU_ONCE
#define CHORUS_QK_NORM_ROPE_CPU_ONCE
namespace chorus::kernels {

// RMSNorm multiplies by weight + shift; no weight: no norm.
struct HeadNorm {
  const float* weight;
  float shift, epsilon;
};

struct Rotation {
  const float* cosine;
  const float* sine;
  uint64_t half;  // rotary_dim / 2
};

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

void norm_head(const float* in, const HeadNorm& norm, uint64_t dim, float* out) {
  const Floats d;
  const double mean = sum_of_squares(in, dim) / static_cast<double>(dim);
  const Vector factor = hn::Set(d, static_cast<float>(1 / std::sqrt(mean + norm.epsilon)));
  const Vector shift = hn::Set(d, norm.shift);
  for_vectors(dim, [&](const auto& load, const auto& store)
                       HWY_ATTR { store(hn::Mul(hn::Mul(load(in), factor), hn::Add(shift, load(norm.weight))), out); });
}

// One head: out = rope(rms_norm(in)).
void norm_and_rotate(const float* in, const HeadNorm& norm, uint64_t dim, const Rotation& rotation, float* out) {
  if (norm.weight) {
    norm_head(in, norm, dim, out);
  } else {
    std::copy_n(in, dim, out);
  }
  float* upper = out + rotation.half;
  for_vectors(rotation.half, [&](const auto& load, const auto& store) HWY_ATTR {
    const Vector low = load(out), high = load(upper), cosine = load(rotation.cosine), sine = load(rotation.sine);
    store(hn::NegMulAdd(high, sine, hn::Mul(low, cosine)), out);
    store(hn::MulAdd(low, sine, hn::Mul(high, cosine)), upper);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(norm_and_rotate);

Status qk_norm_rope_cpu(CpuContext& context, const compute::QkNormRopeArgs& args) {
  if (args.kv.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("qk_norm_rope"));
  const uint64_t dim = args.shape.head_dim, kv_heads = args.shape.kv_heads;
  const Rows kv(args.kv), cosine(args.cosine), sine(args.sine);
  const MutableRows k_out(args.k_out), v_out(args.v_out);
  const float shift = args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f;
  const HeadNorm k_norm{args.normed ? floats(args.k_weight) : nullptr, shift, args.epsilon};
  for_row_ranges(context.pool, args.kv.rows, args.kv.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const Rotation rotation{cosine.row(row), sine.row(row), args.rotary_dim / 2};
      for (uint64_t head = 0; head < kv_heads; ++head) {
        CHORUS_SIMD(norm_and_rotate, target)
        (kv.row(row) + head * dim, k_norm, dim, rotation, k_out.row(row) + head * dim);
      }
      std::copy_n(kv.row(row) + kv_heads * dim, kv_heads * dim, v_out.row(row));
    }
  });
  if (!args.q_out.buffer) return {};
  const Rows q_gate(args.q_gate);
  const MutableRows q_out(args.q_out);
  const HeadNorm q_norm{args.normed ? floats(args.q_weight) : nullptr, shift, args.epsilon};
  const uint64_t pitch = args.gated ? 2 * dim : dim;
  for_row_ranges(context.pool, args.kv.rows, args.q_out.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const Rotation rotation{cosine.row(row), sine.row(row), args.rotary_dim / 2};
      for (uint64_t head = 0; head < args.shape.query_heads; ++head) {
        CHORUS_SIMD(norm_and_rotate, target)
        (q_gate.row(row) + head * pitch, q_norm, dim, rotation, q_out.row(row) + head * dim);
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
