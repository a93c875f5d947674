#include "kernels/rope/rope_cpu.h"

#include <algorithm>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_ROPE_CPU_ONCE
#define CHORUS_ROPE_CPU_ONCE
namespace chorus::kernels {

struct RopeAngles {
  const float* cosine;
  const float* sine;
  uint64_t half;  // rotary_dim / 2
};

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// The turning columns of one head; in and out may be the same.
void turn_halves(const float* in, const RopeAngles& angles, float* out) {
  for_vectors(angles.half, [&](const auto& load, const auto& store) HWY_ATTR {
    const Vector a = load(in), b = load(in + angles.half), cosine = load(angles.cosine), sine = load(angles.sine);
    store(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), out);
    store(hn::MulAdd(a, sine, hn::Mul(b, cosine)), out + angles.half);
  });
}

void turn_pairs(const float* in, const RopeAngles& angles, float* out) {
  const Floats d;
  uint64_t at = 0;
  for (; at < angles.half; at += kLanes) {
    const uint64_t count = angles.half - at < kLanes ? angles.half - at : kLanes;
    HWY_ALIGN float lanes[2 * kLanes] = {};
    std::memcpy(lanes, in + 2 * at, 2 * count * sizeof(float));
    Vector a, b;
    hn::LoadInterleaved2(d, lanes, a, b);
    const bool whole = count == kLanes;
    const Vector cosine = whole ? hn::LoadU(d, angles.cosine + at) : load_part(d, angles.cosine + at, count);
    const Vector sine = whole ? hn::LoadU(d, angles.sine + at) : load_part(d, angles.sine + at, count);
    hn::StoreInterleaved2(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), hn::MulAdd(a, sine, hn::Mul(b, cosine)), d, lanes);
    std::memcpy(out + 2 * at, lanes, 2 * count * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(turn_halves);
HWY_EXPORT(turn_pairs);

Status rope_cpu(CpuContext& context, const compute::RopeArgs& args) {
  if (args.x.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("rope"));
  const auto turn = args.form == compute::RopeForm::halves ? CHORUS_SIMD(turn_halves, target) : CHORUS_SIMD(turn_pairs, target);
  const Rows x(args.x), cosine(args.cosine), sine(args.sine);
  const MutableRows out(args.out);
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first_row, uint64_t last_row, uint32_t) {
    for (uint64_t row = first_row; row < last_row; ++row) {
      const RopeAngles angles{cosine.row(row), sine.row(row), args.rotary_dim / 2};
      for (uint64_t head = 0; head < args.heads; ++head) {
        const float* in = x.row(row) + head * args.head_dim;
        float* to = out.row(row) + head * args.head_dim;
        if (in != to) {
          std::copy_n(in, args.first, to);
          std::copy(in + args.first + args.rotary_dim, in + args.head_dim, to + args.first + args.rotary_dim);
        }
        turn(in + args.first, angles, to + args.first);
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
