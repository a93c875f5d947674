#include "formats/convert.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/half.h"

namespace chorus::formats {
namespace {

constexpr size_t kBlock = 32;

// Exponent field full: infinity or NaN.
constexpr uint32_t kExponentF32 = 0x7f800000u;
constexpr uint32_t kExponentF16 = 0x7c00u;

// Without branches: the exponent is moved by a multiplication, which also normalises subnormal numbers.
inline float widen_f16_branch_free(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const uint32_t special = (magnitude & kExponentF16) == kExponentF16 ? kExponentF32 : 0;
  return std::bit_cast<float>(scaled | special | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

template <float (*kWiden)(uint16_t)>
void widen_all(const std::byte* data, std::span<float> out) {
  std::array<uint16_t, kBlock> block;
  size_t i = 0;
  for (; i + kBlock <= out.size(); i += kBlock) {
    std::memcpy(block.data(), data + 2 * i, sizeof(block));
    for (size_t j = 0; j < kBlock; ++j) out[i + j] = kWiden(block[j]);
  }
  for (; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, sizeof(bits));
    out[i] = kWiden(bits);
  }
}

bool block_is_finite(const float* values) {
  uint32_t bad = 0;
  for (size_t j = 0; j < kBlock; ++j) bad |= (std::bit_cast<uint32_t>(values[j]) & kExponentF32) == kExponentF32 ? 1u : 0u;
  return bad == 0;
}

// Four floats in one register (a vector type of GCC and Clang, on every target); memcpy loads it from any address.
typedef float Float4 __attribute__((vector_size(16)));
using BlockRegisters = std::make_index_sequence<kBlock / 4>;

Float4 load4(const float* values) {
  Float4 four;
  std::memcpy(&four, values, sizeof(four));
  return four;
}

void store4(Float4 four, float* values) { std::memcpy(values, &four, sizeof(four)); }

// One block of columns. The index sequence unrolls the loops over registers, so that the sums stay in them at -O2 as well.
template <size_t... kIndex>
void add_low_rank_block(std::span<const float> b, const float* a, size_t columns, float scaling, float* row,
                        std::index_sequence<kIndex...>) {
  Float4 sum[sizeof...(kIndex)] = {};
  for (const float factor : b) {
    ((sum[kIndex] += factor * load4(a + 4 * kIndex)), ...);
    a += columns;
  }
  (store4(load4(row + 4 * kIndex) + scaling * sum[kIndex], row + 4 * kIndex), ...);
}

}  // namespace

void widen_f16(const std::byte* data, std::span<float> out) { widen_all<widen_f16_branch_free>(data, out); }
void widen_bf16(const std::byte* data, std::span<float> out) { widen_all<bf16_to_float>(data, out); }

std::optional<size_t> first_not_finite(std::span<const float> values) {
  size_t i = 0;
  while (i + kBlock <= values.size() && block_is_finite(values.data() + i)) i += kBlock;
  for (; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return std::nullopt;
}

void add_low_rank(std::span<const float> b, std::span<const float> a, float scaling, std::span<float> row) {
  const size_t columns = row.size();
  size_t column = 0;
  for (; column + kBlock <= columns; column += kBlock)
    add_low_rank_block(b, a.data() + column, columns, scaling, row.data() + column, BlockRegisters());
  for (; column < columns; ++column) {
    float sum = 0;
    for (size_t r = 0; r < b.size(); ++r) sum += b[r] * a[r * columns + column];
    row[column] += scaling * sum;
  }
}

}  // namespace chorus::formats
