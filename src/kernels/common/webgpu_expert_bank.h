// Experts in device memory: records one after the other in storages of whole slots, each small enough for one binding.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

class WebgpuExpertBank final : public compute::ExpertBank {
 public:
  struct Shard {
    uint32_t first_slot = 0;
    uint32_t slot_count = 0;
    std::shared_ptr<gpu::Storage> storage;
  };
  // Every shard but the last holds as many slots as the first.
  WebgpuExpertBank(const compute::ExpertShape& shape, uint32_t slots, std::vector<Shard> shards)
      : ExpertBank(shape, slots), layout_(shape), shards_(std::move(shards)) {}
  const compute::ExpertRecord& layout() const { return layout_; }
  const std::vector<Shard>& shards() const { return shards_; }
  const Shard& shard_of(uint32_t slot) const { return shards_[slot / shards_.front().slot_count]; }

 private:
  compute::ExpertRecord layout_;
  std::vector<Shard> shards_;
};

}  // namespace chorus::kernels
