#include "backends/cpu/weight_packing.h"

#include <cstring>
#include <limits>
#include <string>

#include "base/half.h"

namespace chorus::backends {
namespace {

using kernels::CpuWeight;

constexpr uint64_t kStagingBytes = 16ull << 20;
constexpr uint64_t kWidth = CpuWeight::kPanelWidth;

// The rows [first, first + count) of a slice that lie in one panel, written as columns. A few columns at a time go through a small tile,
// so that each row is read and each line of the panel is written in one piece.
template <typename Stored, typename Narrow>
void pack_rows(const float* rows, uint64_t first, uint64_t count, uint64_t cols, Stored* panel, const Narrow& narrow) {
  constexpr uint64_t kStep = 16;
  float tile[kStep][kWidth];
  Stored* target = panel + first % kWidth;
  for (uint64_t begin = 0; begin < cols; begin += kStep) {
    const uint64_t step = std::min(kStep, cols - begin);
    for (uint64_t row = 0; row < count; ++row) {
      const float* source = rows + row * cols + begin;
      for (uint64_t k = 0; k < step; ++k) tile[k][row] = source[k];
    }
    for (uint64_t k = 0; k < step; ++k) {
      for (uint64_t row = 0; row < count; ++row) target[(begin + k) * kWidth + row] = narrow(tile[k][row]);
    }
  }
}

void pack_slice(const CpuWeight& weight, uint64_t first_row, uint64_t row_count, const float* values, ThreadPool& pool) {
  const uint64_t cols = weight.cols();
  const uint64_t first_panel = first_row / kWidth;
  const uint64_t last_panel = (first_row + row_count - 1) / kWidth;
  pool.run(last_panel - first_panel + 1, [&](uint64_t task, uint32_t) {
    const uint64_t panel = first_panel + task;
    const uint64_t begin = std::max(first_row, panel * kWidth);
    const uint64_t end = std::min(first_row + row_count, (panel + 1) * kWidth);
    const float* rows = values + (begin - first_row) * cols;
    std::byte* target = weight.panel(panel);
    switch (weight.dtype()) {
      case DType::f32:
        pack_rows(rows, begin, end - begin, cols, reinterpret_cast<float*>(target), [](float v) { return v; });
        break;
      case DType::f16:
        pack_rows(rows, begin, end - begin, cols, reinterpret_cast<uint16_t*>(target), float_to_f16);
        break;
      case DType::bf16:
        pack_rows(rows, begin, end - begin, cols, reinterpret_cast<uint16_t*>(target), float_to_bf16);
        break;
    }
  });
}

}  // namespace

uint64_t packed_weight_bytes(uint32_t rows, uint32_t cols, DType dtype) {
  uint64_t bytes = 0;
  const uint64_t padded_rows = CpuWeight::panel_count(rows) * kWidth;
  if (__builtin_mul_overflow(padded_rows * dtype_bytes(dtype), uint64_t{cols}, &bytes)) return std::numeric_limits<uint64_t>::max();
  return bytes;
}

Result<std::shared_ptr<CpuWeight>> pack_weight(std::string_view name, uint32_t rows, uint32_t cols, DType dtype,
                                               const compute::RowSource& source, ThreadPool& pool,
                                               const std::shared_ptr<kernels::MemoryAccount>& account) {
  if (rows == 0 || cols == 0) {
    return make_error(ErrorCode::invalid_argument, "weight \"" + std::string(name) + "\": expected at least one row and column, found " +
                                                       std::to_string(rows) + " x " + std::to_string(cols));
  }
  const uint64_t bytes = packed_weight_bytes(rows, cols, dtype);
  CHORUS_ASSIGN(auto memory, kernels::HostMemory::create(account, bytes, name, kernels::HostMemory::Content::undefined));
  auto weight = std::make_shared<CpuWeight>(rows, cols, dtype, bytes, std::move(memory));
  // Every element is written below, but for the columns that fill up the last panel.
  std::memset(weight->panel(weight->panels() - 1), 0, bytes / weight->panels());
  // Whole panels where they fit, so that every cache line of the target is written once.
  uint64_t slice_rows = std::max<uint64_t>(1, kStagingBytes / (uint64_t{cols} * sizeof(float)));
  if (slice_rows > kWidth) slice_rows -= slice_rows % kWidth;
  slice_rows = std::min<uint64_t>(slice_rows, rows);
  CHORUS_ASSIGN(auto staging, kernels::HostMemory::create(account, slice_rows * cols * sizeof(float), "weight staging",
                                                          kernels::HostMemory::Content::undefined));
  float* values = reinterpret_cast<float*>(staging.data());
  for (uint64_t first = 0; first < rows; first += slice_rows) {
    const uint64_t count = std::min(slice_rows, rows - first);
    CHORUS_TRY(source(static_cast<uint32_t>(first), static_cast<uint32_t>(count), std::span<float>(values, count * cols)));
    pack_slice(*weight, first, count, values, pool);
  }
  return weight;
}

}  // namespace chorus::backends
