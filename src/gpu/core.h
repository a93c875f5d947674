// What a device's parts share: Dawn's handles, the error record, the byte count. Lives until the last storage of the device is gone.
#pragma once

#include <dawn/native/DawnNative.h>
#include <webgpu/webgpu_cpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/bind_groups.h"
#include "gpu/blob_cache.h"
#include "gpu/device.h"
#include "gpu/errors.h"

namespace chorus::gpu {

struct Core {
  ~Core();

  // Declared first, so destroyed last: Dawn's callbacks use these three while the device goes away.
  LogSink log;
  DeviceErrors errors;
  std::unique_ptr<BlobCache> blob_cache;  // null: no cache on disk
  std::unique_ptr<dawn::native::Instance> native_instance;
  wgpu::Instance instance;
  wgpu::Device device;
  wgpu::Queue queue;
  Capabilities capabilities;
  BindGroupCache bind_groups;
  uint64_t memory_bytes_cap = 0;
  uint64_t fake_out_of_memory_bytes = 0;
  double wait_seconds_max = 600;

  // Byte count. Creation reserves before it asks Dawn.
  Status reserve(uint64_t bytes, std::string_view label);
  void release(uint64_t bytes) { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t bytes_in_use() const { return in_use_.load(std::memory_order_relaxed); }
  uint64_t bytes_peak() const { return peak_; }
  uint64_t next_id() { return ++last_id_; }

  // A buffer inside error scopes, with its bytes reserved.
  Result<wgpu::Buffer> create_buffer(wgpu::BufferUsage usage, uint64_t bytes, std::string_view label);
  // Waits for everything submitted. A device that does not answer in time is given up.
  Status wait_for_queue();
  Status wait_or_lose(wgpu::Future future, std::string_view what);
  // The same for waits that resemble each other, as those of a decoding loop: wakes up shortly before the last one's time and asks without
  // sleeping then, for at most a fifth of it (never on a software adapter, whose work needs
  // the cores). A thread that sleeps until the device is done wakes up tens of microseconds later.
  Status wait_again_or_lose(wgpu::Future future, std::string_view what);

 private:
  std::chrono::nanoseconds last_wait_{0};
  std::atomic<uint64_t> in_use_{0};
  uint64_t peak_ = 0;
  uint64_t last_id_ = 0;
};

class StorageImpl final : public Storage {
 public:
  StorageImpl(std::shared_ptr<Core> core, wgpu::Buffer buffer, uint64_t bytes, uint64_t allocated)
      : core_(std::move(core)), buffer_(std::move(buffer)), bytes_(bytes), allocated_(allocated), id_(core_->next_id()) {}
  ~StorageImpl() override;
  uint64_t bytes() const override { return bytes_; }
  uint64_t allocated() const { return allocated_; }  // a multiple of 16, at least 16
  uint64_t id() const { return id_; }                // never reused on this device
  const wgpu::Buffer& buffer() const { return buffer_; }
  const Core* core() const { return core_.get(); }

  mutable uint64_t recording = 0;             // the last recording that holds this storage
  mutable BindGroupCache::Users bind_groups;  // cached bind groups that name it

 private:
  std::shared_ptr<Core> core_;
  wgpu::Buffer buffer_;
  uint64_t bytes_, allocated_, id_;
};

}  // namespace chorus::gpu
