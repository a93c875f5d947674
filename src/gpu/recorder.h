// Records dispatches and copies between two submits: the open encoder and pass, the parameter slots, the storages in use.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "gpu/core.h"
#include "gpu/device.h"
#include "gpu/pipelines.h"
#include "gpu/timestamps.h"

namespace chorus::gpu {

// Uniform parameters of all dispatches of one recording: 256-byte slots in blocks that are written once, just before the submit.
class ParamsArena {
 public:
  struct Slot {
    uint64_t block_id = 0;
    const wgpu::Buffer* buffer = nullptr;
    uint32_t offset = 0;
  };
  explicit ParamsArena(Core& core) : core_(core) {}
  Result<Slot> add(std::span<const std::byte> params);
  void write_all();  // queue writes of every used slot
  void reset() { used_ = 0; }

 private:
  static constexpr uint32_t kSlotsPerBlock = 1024;
  struct Block {
    wgpu::Buffer buffer;
    std::vector<std::byte> host;
    uint64_t id = 0;
  };
  Core& core_;
  std::vector<Block> blocks_;
  uint32_t used_ = 0;
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Core> core);

  bool empty() const { return !encoder_; }
  uint64_t recording() const { return recording_; }
  // Arguments were checked by the device.
  Status dispatch(const Pipeline& pipeline, const Dispatch& dispatch);
  void copy(const std::shared_ptr<const StorageImpl>& source, uint64_t source_offset, const std::shared_ptr<const StorageImpl>& target,
            uint64_t target_offset, uint64_t bytes);
  // Into a mappable buffer of the device.
  void copy_out(const std::shared_ptr<const StorageImpl>& source, uint64_t source_offset, const wgpu::Buffer& target, uint64_t bytes);
  Status submit();
  void discard();
  Timestamps& timestamps() { return timestamps_; }

 private:
  void open_encoder();
  Status open_pass(const Pipeline& pipeline);
  void close_pass();
  void hold(const std::shared_ptr<const Storage>& storage, const StorageImpl& impl);
  Result<const wgpu::BindGroup*> bind_group(const Pipeline& pipeline, const Dispatch& dispatch, const ParamsArena::Slot& slot);
  void reset();

  std::shared_ptr<Core> core_;
  ParamsArena params_;
  Timestamps timestamps_;
  wgpu::CommandEncoder encoder_;
  wgpu::ComputePassEncoder pass_;
  const Pipeline* bound_ = nullptr;  // set in the open pass
  uint64_t recording_ = 1;
  std::vector<std::shared_ptr<const Storage>> held_;
  std::vector<uint64_t> key_;  // scratch of bind_group()
  std::vector<wgpu::BindGroupEntry> entries_;
};

}  // namespace chorus::gpu
