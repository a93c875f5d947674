#include "experts/expert_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "formats/convert.h"

namespace chorus::experts {

using formats::FileDType;

namespace {

constexpr float kE2m1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr size_t kBlock = 32;
constexpr uint64_t kTile = 32;  // of a transposition, so that both sides stay in the cache

float block_scale(uint8_t exponent) {
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(exponent) - 127);
}

void store_row(std::span<const float> row, DType type, std::byte* out) {
  if (type == DType::f32) {
    std::memcpy(out, row.data(), row.size_bytes());
    return;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t bits = type == DType::bf16 ? float_to_bf16(row[i]) : float_to_f16(row[i]);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace

void widen(FileDType type, const std::byte* data, std::span<float> out) {
  if (type == FileDType::F32) {
    std::memcpy(out.data(), data, out.size_bytes());
  } else if (type == FileDType::F16) {
    formats::widen_f16(data, out);
  } else {
    formats::widen_bf16(data, out);
  }
}

void dequantize_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<float> out) {
  for (size_t block = 0; block < scales.size(); ++block) {
    const float scale = block_scale(static_cast<uint8_t>(scales[block]));
    const std::byte* packed = blocks.data() + block * (kBlock / 2);
    float* values = out.data() + block * kBlock;
    for (size_t i = 0; i < kBlock / 2; ++i) {
      const auto pair = static_cast<uint8_t>(packed[i]);
      values[2 * i] = kE2m1[pair & 15] * scale;
      values[2 * i + 1] = kE2m1[pair >> 4] * scale;
    }
  }
}

void transpose(std::span<const float> values, uint64_t rows, uint64_t cols, std::span<float> out) {
  for (uint64_t row_tile = 0; row_tile < rows; row_tile += kTile) {
    for (uint64_t col_tile = 0; col_tile < cols; col_tile += kTile) {
      for (uint64_t row = row_tile; row < std::min(rows, row_tile + kTile); ++row) {
        for (uint64_t col = col_tile; col < std::min(cols, col_tile + kTile); ++col) out[col * rows + row] = values[row * cols + col];
      }
    }
  }
}

float store_rows(std::span<const float> values, uint64_t first, uint64_t step, uint64_t rows, uint64_t cols, uint64_t padded, DType type,
                 std::byte* out) {
  const uint64_t element = dtype_bytes(type);
  float largest = 0;
  bool finite = true;
  for (uint64_t row = 0; row < rows; ++row) {
    const auto source = values.subspan((first + row * step) * cols, cols);
    finite = finite && !formats::first_not_finite(source);
    for (const float value : source) largest = std::max(largest, std::abs(value));
    std::byte* target = out + row * padded * element;
    store_row(source, type, target);
    std::memset(target + cols * element, 0, (padded - cols) * element);
  }
  return finite ? largest : std::numeric_limits<float>::infinity();
}

}  // namespace chorus::experts
