// Twin of embed on plain vectors, with its own rounding to the stored types (arithmetic on doubles, not on bits).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace chorus::kernels {

// The nearest value with `mantissa_bits` explicit bits, exponents from `exponent_min`, ties to even; infinity past `largest`.
inline double round_to_format(double value, int mantissa_bits, int exponent_min, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int unit = std::max(exponent - 1, exponent_min) - mantissa_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

inline double round_to_dtype(float value, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return value;
    case DType::f16:
      return round_to_format(value, 10, -14, 65504.0);
    case DType::bf16:
      return round_to_format(value, 7, -126, static_cast<double>(0x1.fep127));
  }
  return value;
}

// table: [table_rows, cols] before rounding; the result is [ids.size(), cols].
inline std::vector<double> embed_reference(std::span<const float> table, DType dtype, std::span<const uint32_t> ids, uint32_t cols) {
  std::vector<double> out;
  out.reserve(ids.size() * cols);
  for (const uint32_t id : ids) {
    for (uint32_t col = 0; col < cols; ++col) out.push_back(round_to_dtype(table[static_cast<size_t>(id) * cols + col], dtype));
  }
  return out;
}

}  // namespace chorus::kernels
