// The loops over weights while loading: widening, the search for NaN, the low-rank update. Blocks of a fixed size, so that
// compilers turn them into SIMD without flags; results do not depend on the instruction set or on how rows are split.
// Must not know: files, names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace chorus::formats {

// `data` holds out.size() 16-bit numbers at any alignment.
void widen_f16(const std::byte* data, std::span<float> out);
void widen_bf16(const std::byte* data, std::span<float> out);

// Index of the first NaN or infinity.
std::optional<size_t> first_not_finite(std::span<const float> values);

// row[j] += scaling * (sum over r of b[r] * a[r * row.size() + j]); the sum is made apart, in the order of r, and added once.
void add_low_rank(std::span<const float> b, std::span<const float> a, float scaling, std::span<float> row);

}  // namespace chorus::formats
