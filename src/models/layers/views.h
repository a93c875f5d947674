// Views of rows and columns, for the code that records passes.
#pragma once

#include <cstdint>

#include "compute/ops.h"

namespace chorus::models {

inline compute::MutableView view_of(compute::Buffer* buffer, uint32_t rows, uint32_t cols, uint64_t offset = 0) {
  return {buffer, offset, rows, cols, cols};
}

// Columns [first, first + count).
inline compute::View columns_of(const compute::View& whole, uint32_t first, uint32_t count) {
  return {whole.buffer, whole.offset + first, whole.rows, count, whole.stride};
}
inline compute::MutableView columns_of(const compute::MutableView& whole, uint32_t first, uint32_t count) {
  return {whole.buffer, whole.offset + first, whole.rows, count, whole.stride};
}

// Rows [first, first + count).
inline compute::View rows_of(const compute::View& whole, uint32_t first, uint32_t count) {
  return {whole.buffer, whole.offset + uint64_t{first} * whole.stride, count, whole.cols, whole.stride};
}
inline compute::MutableView rows_of(const compute::MutableView& whole, uint32_t first, uint32_t count) {
  return {whole.buffer, whole.offset + uint64_t{first} * whole.stride, count, whole.cols, whole.stride};
}

inline uint32_t padded_columns(uint32_t cols) { return (cols + 3) / 4 * 4; }

}  // namespace chorus::models
