// SIMD building blocks of the cpu kernels, compiled once per target: include after hwy/highway.h, without a guard of the usual kind.
// Rows may have any length; nothing is read or written past it. Small dense products work on padded scratch instead (multiply_add).
#if defined(CHORUS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_CPU_VECTOR_INL_H_
#undef CHORUS_CPU_VECTOR_INL_H_
#else
#define CHORUS_CPU_VECTOR_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
constexpr uint64_t kLanes = hn::MaxLanes(Floats());

// e^x for x <= 0, within 1 ulp; NaN stays NaN (Highway's own gives 0, and the portable form converts it to an integer, which C++ leaves
// undefined).
HWY_INLINE Vector exp_of_nonpositive(Floats d, Vector x) {
  const auto nan = hn::IsNaN(x);
  return hn::IfThenElse(nan, x, hn::Exp(d, hn::IfThenZeroElse(nan, x)));
}

// 1 / (1 + e^-x), exact to rounding on both sides: only e^-|x| is formed.
HWY_INLINE Vector sigmoid(Floats d, Vector x) {
  const Vector one = hn::Set(d, 1.0f);
  const Vector power = exp_of_nonpositive(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), power, one), hn::Add(one, power));
}

HWY_INLINE Vector silu(Floats d, Vector x) { return hn::Mul(x, sigmoid(d, x)); }

// The first `count` < kLanes elements, the rest zero.
HWY_INLINE Vector load_part(Floats d, const float* from, uint64_t count) {
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(d, lanes);
}
HWY_INLINE void store_part(Floats d, Vector value, float* to, uint64_t count) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, d, lanes);
  std::memcpy(to, lanes, count * sizeof(float));
}

// Calls body(load, store, at) for every vector of [0, count): load(row) and store(value, row) reach row[at ...], also at the ragged end.
template <typename Body>
HWY_INLINE void for_vectors(uint64_t count, const Body& body) {
  const Floats d;
  uint64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    body([&](const float* row) HWY_ATTR { return hn::LoadU(d, row + at); },
         [&](Vector value, float* row) HWY_ATTR { hn::StoreU(value, d, row + at); });
  }
  if (at < count) {
    body([&](const float* row) HWY_ATTR { return load_part(d, row + at, count - at); },
         [&](Vector value, float* row) HWY_ATTR { store_part(d, value, row + at, count - at); });
  }
}

// Sum of squares in f64.
HWY_INLINE double sum_of_squares(const float* row, uint64_t count) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, hn::ScalableTag<double>> half;
  const uint64_t step = hn::Lanes(d64);
  auto sum0 = hn::Zero(d64), sum1 = sum0;
  uint64_t at = 0;
  for (; at + 2 * step <= count; at += 2 * step) {
    const auto x0 = hn::PromoteTo(d64, hn::LoadU(half, row + at)), x1 = hn::PromoteTo(d64, hn::LoadU(half, row + at + step));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  double total = hn::GetLane(hn::SumOfLanes(d64, hn::Add(sum0, sum1)));
  for (; at < count; ++at) total += static_cast<double>(row[at]) * row[at];
  return total;
}

// One register tile: c[r][0 .. kVectors * kLanes) += sum over k of a[r][k] * b[k][...]. Sums run over k in order, from the old c.
template <uint64_t kRows, uint64_t kVectors>
HWY_INLINE void multiply_add_tile(const float* HWY_RESTRICT a, uint64_t a_stride, const float* HWY_RESTRICT b, uint64_t b_stride,
                                  uint64_t depth, float* HWY_RESTRICT c, uint64_t c_stride) {
  const Floats d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, c + r * c_stride + v * kLanes);
  }
  for (uint64_t k = 0; k < depth; ++k, b += b_stride) {
    Vector line[kVectors];
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) line[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) {
      const Vector value = hn::Set(d, a[r * a_stride + k]);
#pragma GCC unroll 16
      for (uint64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, line[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, c + r * c_stride + v * kLanes);
  }
}

#if HWY_TARGET == HWY_NEON || HWY_TARGET <= HWY_AVX3
constexpr uint64_t kTileVectors = 4;  // 32 vector registers
#else
constexpr uint64_t kTileVectors = 2;
#endif

template <uint64_t kRows>
HWY_INLINE void multiply_add_rows(const float* a, uint64_t a_stride, const float* b, uint64_t b_stride, uint64_t depth, float* c,
                                  uint64_t c_stride, uint64_t columns) {
  uint64_t at = 0;
  for (; at + kTileVectors * kLanes <= columns; at += kTileVectors * kLanes) {
    multiply_add_tile<kRows, kTileVectors>(a, a_stride, b + at, b_stride, depth, c + at, c_stride);
  }
  for (; at < columns; at += kLanes) multiply_add_tile<kRows, 1>(a, a_stride, b + at, b_stride, depth, c + at, c_stride);
}

// c [rows, columns] += a [rows, depth] * b [depth, columns], row-major. Rows of b and c are vector-aligned, `columns` a multiple of kLanes.
// With `triangular`, entries of a above the diagonal must hold zeros; whole tiles of them are skipped.
struct Product {
  const float* a;
  uint64_t a_stride;
  const float* b;
  uint64_t b_stride;
  float* c;
  uint64_t c_stride;
  uint64_t rows, depth, columns;
  bool triangular = false;  // a is lower triangular (diagonal included)
};
inline void multiply_add(const Product& p) {
  for (uint64_t row = 0; row < p.rows;) {
    const uint64_t rows = p.rows - row >= 4 ? 4 : 1;
    const uint64_t depth = p.triangular && row + rows < p.depth ? row + rows : p.depth;
    const float* a = p.a + row * p.a_stride;
    float* c = p.c + row * p.c_stride;
    if (rows == 4) {
      multiply_add_rows<4>(a, p.a_stride, p.b, p.b_stride, depth, c, p.c_stride, p.columns);
    } else {
      multiply_add_rows<1>(a, p.a_stride, p.b, p.b_stride, depth, c, p.c_stride, p.columns);
    }
    row += rows;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#endif
