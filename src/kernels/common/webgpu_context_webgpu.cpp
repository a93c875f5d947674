// Views as bindings: windows of buffers larger than one binding. Pure.
#include <algorithm>
#include <string>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {
namespace {

constexpr uint64_t kElementBytes = 4;

Error too_large(uint64_t bytes, uint64_t limit) {
  return make_error(ErrorCode::limit_exceeded,
                    "a view of " + std::to_string(bytes) + " bytes does not fit one binding of " + std::to_string(limit) + " bytes");
}

}  // namespace

Result<BoundView> bind_view(const compute::View& view, gpu::Access access, const gpu::Capabilities& capabilities) {
  CHORUS_CHECK(view.buffer != nullptr);
  BoundView bound;
  bound.binding.storage = storage_of(view.buffer);
  bound.binding.access = access;
  const uint64_t limit = capabilities.storage_binding_bytes_max;
  const uint64_t elements = view.rows == 0 || view.cols == 0 ? 0 : uint64_t{view.rows - 1} * view.stride + view.cols;
  uint64_t first = view.offset;
  const uint64_t whole = (view.buffer->bytes() + 15) / 16 * 16;  // storages are allocated in whole vec4s
  if (whole > limit) {
    const uint64_t alignment = std::max<uint64_t>(capabilities.storage_offset_alignment, 16);
    bound.binding.offset = view.offset * kElementBytes / alignment * alignment;
    first -= bound.binding.offset / kElementBytes;
    const uint64_t needed = (first + std::max<uint64_t>(elements, 1)) * kElementBytes;
    bound.binding.size = std::min((needed + 15) / 16 * 16, whole - bound.binding.offset);
    if (bound.binding.size > limit) return too_large(elements * kElementBytes, limit);
  }
  if (first + elements > UINT32_MAX) return too_large(elements * kElementBytes, uint64_t{UINT32_MAX} * kElementBytes);
  bound.offset = static_cast<uint32_t>(first);
  return bound;
}

Result<gpu::Binding> bind_buffer(const compute::Buffer* buffer, gpu::Access access, const gpu::Capabilities& capabilities) {
  CHORUS_CHECK(buffer != nullptr);
  if (buffer->bytes() > capabilities.storage_binding_bytes_max) return too_large(buffer->bytes(), capabilities.storage_binding_bytes_max);
  gpu::Binding binding;
  binding.storage = storage_of(buffer);
  binding.access = access;
  return binding;
}

}  // namespace chorus::kernels
