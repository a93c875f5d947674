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

// Multiplies by factor * (weight + shift); no weight: no norm.
struct HeadNorm {
  const float* weight;
  float shift, factor;
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

float norm_factor(const float* in, uint64_t count, float epsilon) {
  return static_cast<float>(1 / std::sqrt(sum_of_squares(in, count) / static_cast<double>(count) + epsilon));
}

void norm_head(const float* in, const HeadNorm& norm, uint64_t dim, float* out) {
  const Floats d;
  const Vector factor = hn::Set(d, norm.factor);
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

HWY_EXPORT(norm_factor);
HWY_EXPORT(norm_and_rotate);

namespace {

// Heads of one kind, `pitch` from one to the next.
struct Heads {
  uint32_t count;
  uint64_t pitch;
  const float* weight;
};

void run_row(const compute::QkNormRopeArgs& args, int64_t target, const Heads& heads, const float* in, const Rotation& rotation,
             float* out) {
  const uint64_t dim = args.shape.head_dim;
  HeadNorm norm{heads.weight, args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f, 1};
  if (args.norm == compute::QueryKeyNorm::whole_row) norm.factor = CHORUS_SIMD(norm_factor, target)(in, heads.count * dim, args.epsilon);
  for (uint64_t head = 0; head < heads.count; ++head) {
    const float* from = in + head * heads.pitch;
    if (args.norm == compute::QueryKeyNorm::per_head) norm.factor = CHORUS_SIMD(norm_factor, target)(from, dim, args.epsilon);
    CHORUS_SIMD(norm_and_rotate, target)(from, norm, dim, rotation, out + head * dim);
    if (args.norm == compute::QueryKeyNorm::whole_row) norm.weight += dim;
  }
}

}  // namespace

Status qk_norm_rope_cpu(CpuContext& context, const compute::QkNormRopeArgs& args) {
  if (args.kv.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("qk_norm_rope"));
  const uint64_t dim = args.shape.head_dim, values = args.shape.kv_heads * dim;
  const Rows kv(args.kv), cosine(args.cosine), sine(args.sine);
  const MutableRows k_out(args.k_out), v_out(args.v_out);
  const bool normed = args.norm != compute::QueryKeyNorm::none;
  const Heads keys{args.shape.kv_heads, dim, normed ? floats(args.k_weight) : nullptr};
  for_row_ranges(context.pool, args.kv.rows, args.kv.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      run_row(args, target, keys, kv.row(row), {cosine.row(row), sine.row(row), args.rotary_dim / 2}, k_out.row(row));
      std::copy_n(kv.row(row) + values, values, v_out.row(row));
    }
  });
  if (!args.q_out.buffer) return {};
  const Rows q_gate(args.q_gate);
  const MutableRows q_out(args.q_out);
  const Heads queries{args.shape.query_heads, args.gated ? 2 * dim : dim, normed ? floats(args.q_weight) : nullptr};
  for_row_ranges(context.pool, args.kv.rows, args.q_out.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row)
      run_row(args, target, queries, q_gate.row(row), {cosine.row(row), sine.row(row), args.rotary_dim / 2}, q_out.row(row));
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
