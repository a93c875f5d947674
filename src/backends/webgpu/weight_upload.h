// Streams a matrix from the host into device memory: narrow to the stored type, pad, shard by rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"
#include "gpu/device.h"
#include "kernels/common/webgpu_context.h"

namespace chorus::backends {

struct WeightLayout {
  uint32_t padded_cols = 0;
  uint64_t row_bytes = 0;
  uint32_t rows_per_shard = 0;  // whole rows that fit one binding; 0: not even one row fits
  uint64_t bytes = 0;           // of all shards
};
// Pure. binding_bytes_max: the largest binding of the device.
WeightLayout weight_layout(uint32_t rows, uint32_t cols, DType dtype, uint64_t binding_bytes_max);

Result<std::shared_ptr<kernels::WebgpuWeight>> upload_weight(gpu::Device& device, std::string_view name, uint32_t rows, uint32_t cols,
                                                             DType dtype, const compute::RowSource& source);

}  // namespace chorus::backends
