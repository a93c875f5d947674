#include "gpu/upload.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace chorus::gpu {

Result<Uploader::Slot*> Uploader::next_slot() {
  if (slots_.size() < kSlotsMax) {
    Slot slot;
    CHORUS_ASSIGN(slot.buffer, core_.create_buffer(wgpu::BufferUsage::MapWrite | wgpu::BufferUsage::CopySrc, kSlotBytes, "upload staging"));
    map_again(slot);
    slots_.push_back(std::move(slot));
    next_ = slots_.size() - 1;
  }
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlotsMax;
  if (!slot.answer) map_again(slot);  // an earlier write failed half-way
  CHORUS_TRY(core_.wait_or_lose(slot.mapping, "uploading"));
  const MapAnswer answer = *std::exchange(slot.answer, nullptr);
  if (answer.status != wgpu::MapAsyncStatus::Success) {
    return make_error(ErrorCode::internal, "webgpu: mapping a staging buffer failed: " + answer.message);
  }
  return &slot;
}

void Uploader::map_again(Slot& slot) {
  slot.answer = std::make_shared<MapAnswer>();
  slot.mapping = slot.buffer.MapAsync(
      wgpu::MapMode::Write, 0, kSlotBytes, wgpu::CallbackMode::WaitAnyOnly,
      [](wgpu::MapAsyncStatus status, wgpu::StringView message, std::shared_ptr<MapAnswer>* owned) {
        (*owned)->status = status;
        (*owned)->message = one_line(std::string_view(message));
        delete owned;
      },
      new std::shared_ptr<MapAnswer>(slot.answer));
}

Status Uploader::write_slice(Slot& slot, const wgpu::Buffer& target, uint64_t offset, std::span<const std::byte> data) {
  void* mapped = slot.buffer.GetMappedRange(0, data.size());
  if (mapped == nullptr) return make_error(ErrorCode::internal, "webgpu: a mapped staging buffer has no address");
  std::memcpy(mapped, data.data(), data.size());
  slot.buffer.Unmap();
  const wgpu::CommandEncoder encoder = core_.device.CreateCommandEncoder();
  encoder.CopyBufferToBuffer(slot.buffer, 0, target, offset, data.size());
  const wgpu::CommandBuffer commands = encoder.Finish();
  core_.queue.Submit(1, &commands);
  map_again(slot);
  return {};
}

Status Uploader::write(const wgpu::Buffer& target, uint64_t offset, std::span<const std::byte> data) {
  for (uint64_t done = 0; done < data.size();) {
    const uint64_t bytes = std::min<uint64_t>(kSlotBytes, data.size() - done);
    CHORUS_ASSIGN(Slot * slot, next_slot());
    CHORUS_TRY(write_slice(*slot, target, offset + done, data.subspan(done, bytes)));
    done += bytes;
  }
  return {};
}

}  // namespace chorus::gpu
