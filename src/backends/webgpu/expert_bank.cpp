#include "backends/webgpu/expert_bank.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace chorus::backends {
namespace {

// Some drivers report more but lose count at 2 GiB.
constexpr uint64_t kShardBytesMax = (uint64_t{2} << 30) - 4096;

}  // namespace

uint32_t slots_per_shard(uint64_t record_bytes, uint32_t slots, const gpu::Capabilities& capabilities) {
  const uint64_t most = std::min({capabilities.storage_binding_bytes_max, capabilities.buffer_bytes_max, kShardBytesMax});
  return static_cast<uint32_t>(std::min<uint64_t>(most / record_bytes, slots));
}

Result<std::shared_ptr<kernels::WebgpuExpertBank>> create_webgpu_expert_bank(gpu::Device& device, const compute::ExpertShape& shape,
                                                                             uint32_t slots, std::string_view label) {
  const compute::ExpertRecord record(shape);
  const uint32_t per_shard = slots_per_shard(record.bytes, slots, device.capabilities());
  if (per_shard == 0) {
    return make_error(ErrorCode::limit_exceeded, "expert bank " + std::string(label) + ": one expert takes " +
                                                     std::to_string(record.bytes) + " bytes, a binding of this adapter holds " +
                                                     std::to_string(device.capabilities().storage_binding_bytes_max));
  }
  std::vector<kernels::WebgpuExpertBank::Shard> shards;
  for (uint32_t first = 0; first < slots;) {
    kernels::WebgpuExpertBank::Shard shard{first, std::min(per_shard, slots - first), nullptr};
    CHORUS_ASSIGN(shard.storage, device.create_storage(shard.slot_count * record.bytes, label));
    first += shard.slot_count;
    shards.push_back(std::move(shard));
  }
  return std::make_shared<kernels::WebgpuExpertBank>(shape, slots, std::move(shards));
}

Status write_webgpu_expert(gpu::Device& device, const kernels::WebgpuExpertBank& bank, uint32_t slot, std::span<const std::byte> record) {
  const kernels::WebgpuExpertBank::Shard& shard = bank.shard_of(slot);
  return device.write(shard.storage, (slot - shard.first_slot) * bank.layout().bytes, record);
}

}  // namespace chorus::backends
