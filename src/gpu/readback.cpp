#include "gpu/readback.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace chorus::gpu {
namespace {

struct MapAnswer {
  wgpu::MapAsyncStatus status = wgpu::MapAsyncStatus::Aborted;
  std::string message;
};

}  // namespace

Status read_mapped(Core& core, const wgpu::Buffer& buffer, std::span<std::byte> out) {
  CHORUS_TRY(core.errors.take());
  auto answer = std::make_shared<MapAnswer>();
  const wgpu::Future future = buffer.MapAsync(
      wgpu::MapMode::Read, 0, out.size(), wgpu::CallbackMode::WaitAnyOnly,
      [](wgpu::MapAsyncStatus status, wgpu::StringView message, std::shared_ptr<MapAnswer>* owned) {
        (*owned)->status = status;
        (*owned)->message = one_line(std::string_view(message));
        delete owned;
      },
      new std::shared_ptr<MapAnswer>(answer));
  if (Status waited = core.wait_again_or_lose(future, "reading back " + std::to_string(out.size()) + " bytes"); !waited.ok()) {
    buffer.Unmap();  // the error may be another call's: a buffer left mapped would fail the next submit that copies into it
    return waited;
  }
  if (answer->status != wgpu::MapAsyncStatus::Success) {
    return make_error(ErrorCode::internal, "webgpu: mapping a readback buffer failed: " + answer->message);
  }
  const void* mapped = buffer.GetConstMappedRange(0, out.size());
  if (mapped == nullptr) {
    buffer.Unmap();
    return make_error(ErrorCode::internal, "webgpu: a mapped readback buffer has no address");
  }
  std::memcpy(out.data(), mapped, out.size());
  buffer.Unmap();
  return core.errors.take();
}

}  // namespace chorus::gpu
