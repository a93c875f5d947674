// Makes expert banks in device memory and fills their slots.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "gpu/device.h"
#include "kernels/common/webgpu_expert_bank.h"

namespace chorus::backends {

// Pure: slots that one storage holds; 0: not even one record fits.
uint32_t slots_per_shard(uint64_t record_bytes, uint32_t slots, const gpu::Capabilities& capabilities);

Result<std::shared_ptr<kernels::WebgpuExpertBank>> create_webgpu_expert_bank(gpu::Device& device, const compute::ExpertShape& shape,
                                                                             uint32_t slots, std::string_view label);
Status write_webgpu_expert(gpu::Device& device, const kernels::WebgpuExpertBank& bank, uint32_t slot, std::span<const std::byte> record);

}  // namespace chorus::backends
