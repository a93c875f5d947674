// Turns a view of a buffer into a storage binding plus an element offset inside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

struct BoundView {
  gpu::Binding binding;
  uint32_t offset = 0;  // elements from the start of the binding to the view's first element
  uint32_t stride = 0;
};

// Binds the whole buffer (offset 0) where the adapter's limit allows it, else an aligned window around the view.
// Errors: limit_exceeded when the view itself is larger than one binding.
inline Result<BoundView> bind_view(const compute::View& view, gpu::Access access, const gpu::Capabilities& capabilities, std::string_view name) {
  constexpr uint64_t kElementBytes = 4;
  BoundView bound;
  bound.stride = view.stride;
  bound.binding = {storage_of(view.buffer), access, 0, 0};
  const uint64_t extent = view.rows == 0 ? 0 : (uint64_t{view.rows} - 1) * view.stride + view.cols;
  uint64_t offset = view.offset;
  if (view.buffer->bytes() > capabilities.storage_binding_bytes_max) {
    const uint64_t alignment = std::max<uint64_t>(capabilities.storage_offset_alignment, kElementBytes);
    const uint64_t begin = offset * kElementBytes / alignment * alignment;
    const uint64_t last = (view.buffer->bytes() - begin) / 16 * 16;
    const uint64_t size = std::min(last, ((offset + extent) * kElementBytes - begin + 15) / 16 * 16);
    if (size > capabilities.storage_binding_bytes_max) {
      return make_error(ErrorCode::limit_exceeded, std::string(name) + ": expected at most " +
                                                       std::to_string(capabilities.storage_binding_bytes_max) +
                                                       " bytes in one binding, found a view of " + std::to_string(size));
    }
    bound.binding.offset = begin;
    bound.binding.size = std::max<uint64_t>(size, 16);
    offset -= begin / kElementBytes;
  }
  if (offset + extent > std::numeric_limits<uint32_t>::max()) {
    return make_error(ErrorCode::limit_exceeded, std::string(name) + ": expected element indices within 32 bits, found " +
                                                     std::to_string(offset + extent));
  }
  bound.offset = static_cast<uint32_t>(offset);
  return bound;
}

// True when rows of the view can be read four elements at a time (the binding itself starts at a multiple of 16 bytes).
inline bool is_vec4_view(const compute::View& view) { return view.offset % 4 == 0 && view.stride % 4 == 0 && view.cols % 4 == 0; }

}  // namespace chorus::kernels
