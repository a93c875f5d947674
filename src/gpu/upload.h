// Large host data on its way to the device: a few staging buffers, made once and used in turn, so that memory stays small and no
// staging memory is allocated while a model loads.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "gpu/core.h"

namespace chorus::gpu {

class Uploader {
 public:
  explicit Uploader(Core& core) : core_(core) {}
  // Data of at most this size is better handed to the queue at once.
  static constexpr uint64_t kSmallBytes = 256ull << 10;

  // Copies `data` into `target`. Returns when the last slice is on its way; runs after everything submitted before.
  Status write(const wgpu::Buffer& target, uint64_t offset, std::span<const std::byte> data);

 private:
  static constexpr uint64_t kSlotBytes = 8ull << 20;
  static constexpr size_t kSlotsMax = 3;
  struct MapAnswer {
    wgpu::MapAsyncStatus status = wgpu::MapAsyncStatus::Aborted;
    std::string message;
  };
  struct Slot {
    wgpu::Buffer buffer;
    wgpu::Future mapping;               // pending from the last use until the device has taken the data
    std::shared_ptr<MapAnswer> answer;  // null: not being mapped
  };

  Result<Slot*> next_slot();
  Status write_slice(Slot& slot, const wgpu::Buffer& target, uint64_t offset, std::span<const std::byte> data);
  void map_again(Slot& slot);

  Core& core_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace chorus::gpu
