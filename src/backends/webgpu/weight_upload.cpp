#include "backends/webgpu/weight_upload.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"

namespace chorus::backends {
namespace {

// f32 elements that the source fills at a time: 8 MiB of host memory, and as much again in the stored type.
constexpr uint64_t kSliceElements = 2ull << 20;
constexpr uint32_t kColumnPadding = 4;  // kernels read rows as vec4s

void narrow_row(std::span<const float> row, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(out, row.data(), row.size_bytes());
      return;
    case DType::f16: {
      auto* halves = reinterpret_cast<uint16_t*>(out);
      for (size_t col = 0; col < row.size(); ++col) halves[col] = float_to_f16(row[col]);
      return;
    }
    case DType::bf16: {
      auto* halves = reinterpret_cast<uint16_t*>(out);
      for (size_t col = 0; col < row.size(); ++col) halves[col] = float_to_bf16(row[col]);
      return;
    }
  }
}

// Host memory of one upload, reused for every slice.
struct Slices {
  std::vector<float> values;
  std::vector<std::byte> stored;
  uint32_t rows = 0;
};

Status upload_shard(gpu::Device& device, const WeightLayout& layout, uint32_t cols, DType dtype, const compute::RowSource& source,
                    Slices& slices, const kernels::WebgpuWeight::Shard& shard) {
  const uint32_t end = shard.first_row + shard.row_count;
  for (uint32_t row = shard.first_row; row < end;) {
    const uint32_t count = std::min(slices.rows, end - row);
    const std::span<float> values(slices.values.data(), size_t{count} * cols);
    CHORUS_TRY(source(row, count, values));
    const uint64_t offset = (row - shard.first_row) * layout.row_bytes;
    if (dtype == DType::f32 && layout.padded_cols == cols) {  // stored as it comes
      CHORUS_TRY(device.write(shard.storage, offset, std::as_bytes(values)));
    } else {
      for (uint32_t index = 0; index < count; ++index) {
        narrow_row(values.subspan(size_t{index} * cols, cols), dtype, slices.stored.data() + index * layout.row_bytes);
      }
      CHORUS_TRY(device.write(shard.storage, offset, std::span<const std::byte>(slices.stored.data(), count * layout.row_bytes)));
    }
    row += count;
  }
  return {};
}

}  // namespace

WeightLayout weight_layout(uint32_t rows, uint32_t cols, DType dtype, uint64_t binding_bytes_max) {
  WeightLayout layout;
  const uint64_t padded = (uint64_t{cols} + kColumnPadding - 1) / kColumnPadding * kColumnPadding;
  layout.padded_cols = static_cast<uint32_t>(std::min<uint64_t>(padded, UINT32_MAX));
  layout.row_bytes = padded * dtype_bytes(dtype);
  layout.bytes = layout.row_bytes * rows;
  if (layout.row_bytes == 0) {
    layout.rows_per_shard = rows;
  } else {
    layout.rows_per_shard = static_cast<uint32_t>(std::min<uint64_t>(binding_bytes_max / layout.row_bytes, rows));
  }
  return layout;
}

Result<std::shared_ptr<kernels::WebgpuWeight>> upload_weight(gpu::Device& device, std::string_view name, uint32_t rows, uint32_t cols,
                                                             DType dtype, const compute::RowSource& source) {
  const gpu::Capabilities& capabilities = device.capabilities();
  const uint64_t piece_max = std::min(capabilities.storage_binding_bytes_max, capabilities.buffer_bytes_max);
  const WeightLayout layout = weight_layout(rows, cols, dtype, piece_max);
  if (rows > 0 && layout.rows_per_shard == 0) {
    return make_error(ErrorCode::limit_exceeded, "weight " + std::string(name) + ": one row takes " + std::to_string(layout.row_bytes) +
                                                     " bytes, a binding of this adapter holds " + std::to_string(piece_max));
  }
  Slices slices;
  slices.rows =
      static_cast<uint32_t>(std::clamp<uint64_t>(kSliceElements / std::max<uint64_t>(layout.padded_cols, 1), 1, std::max(rows, 1u)));
  slices.values.resize(size_t{slices.rows} * cols);
  slices.stored.resize(slices.rows * layout.row_bytes);  // zero: the padding stays so
  std::vector<kernels::WebgpuWeight::Shard> shards;
  for (uint32_t first = 0; first < rows;) {
    kernels::WebgpuWeight::Shard shard;
    shard.first_row = first;
    shard.row_count = std::min(layout.rows_per_shard, rows - first);
    CHORUS_ASSIGN(shard.storage, device.create_storage(shard.row_count * layout.row_bytes, name));
    CHORUS_TRY(upload_shard(device, layout, cols, dtype, source, slices, shard));
    first += shard.row_count;
    shards.push_back(std::move(shard));
  }
  return std::make_shared<kernels::WebgpuWeight>(rows, cols, layout.padded_cols, dtype, layout.bytes, std::move(shards));
}

}  // namespace chorus::backends
