// The loops over an expert's numbers: from stored bytes to f32, from f32 to a record's element type. Must not know names or files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"
#include "tensor/dtype.h"

namespace chorus::experts {

// F32, F16 or BF16 bytes to f32; out decides how many.
void widen(formats::FileDType type, const std::byte* data, std::span<float> out);

// MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 E2M1 numbers, two a byte, low half first, times 2^(scale - 127).
// blocks: out.size() / 2 bytes; scales: out.size() / 32 bytes. A scale of 255 stands for NaN, which ends up in `out`.
void dequantize_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<float> out);

// [rows, cols] to [cols, rows].
void transpose(std::span<const float> values, uint64_t rows, uint64_t cols, std::span<float> out);

// Rows of `cols` numbers, row r at index first + r * step of `values` (in rows), to rows of `padded` elements of a record. What is past
// `cols` becomes zero. Returns the largest magnitude; infinity when a number is not finite.
float store_rows(std::span<const float> values, uint64_t first, uint64_t step, uint64_t rows, uint64_t cols, uint64_t padded, DType type,
                 std::byte* out);

}  // namespace chorus::experts
