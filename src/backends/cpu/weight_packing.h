// Turns rows of f32 values, as they come from a file, into the panel layout of CpuWeight.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/common/cpu_context.h"

namespace chorus::backends {

// Bytes of the packed matrix, padding included; UINT64_MAX when they do not fit 64 bits.
uint64_t packed_weight_bytes(uint32_t rows, uint32_t cols, DType dtype);

// Reads `source` in slices of at most 16 MiB (or one row). Errors: those of the source, out_of_memory, invalid_argument (an empty matrix).
Result<std::shared_ptr<kernels::CpuWeight>> pack_weight(std::string_view name, uint32_t rows, uint32_t cols, DType dtype,
                                                        const compute::RowSource& source, ThreadPool& pool,
                                                        const std::shared_ptr<kernels::MemoryAccount>& account);

}  // namespace chorus::backends
