// Bindings of views. A buffer that fits one storage binding is bound whole; of a bigger one only the rows that a dispatch touches are
// bound. Operations whose rows do not depend on each other run in slices of rows, so that every window fits.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

struct RowSlice {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Bytes from the first to the last element of `count` rows.
inline uint64_t window_bytes(const compute::View& view, uint32_t count) {
  return count == 0 ? 0 : (static_cast<uint64_t>(count - 1) * view.stride + view.cols) * 4;
}

// The most rows of a view that one binding holds, wherever the window starts.
inline uint32_t rows_per_window(const compute::View& view, const gpu::Capabilities& capabilities) {
  const uint64_t usable = capabilities.storage_binding_bytes_max -
                          std::min<uint64_t>(capabilities.storage_binding_bytes_max, capabilities.storage_offset_alignment);
  const uint64_t row_bytes = static_cast<uint64_t>(std::max(view.stride, 1u)) * 4;
  return static_cast<uint32_t>(std::min<uint64_t>(usable / row_bytes, UINT32_MAX));
}

// Equal slices of `rows` rows (the last may be shorter) such that every view's slice fits one binding.
inline Result<std::vector<RowSlice>> slice_rows(uint32_t rows, std::initializer_list<compute::View> views, std::string_view operation,
                                                const gpu::Capabilities& capabilities) {
  uint32_t most = rows;
  for (const compute::View& view : views) {
    if (window_bytes(view, rows) + capabilities.storage_offset_alignment <= capabilities.storage_binding_bytes_max) continue;
    most = std::min(most, rows_per_window(view, capabilities));
  }
  if (rows > 0 && most == 0) {
    return make_error(ErrorCode::limit_exceeded, std::string(operation) + ": one row does not fit a storage binding of " +
                                                     std::to_string(capabilities.storage_binding_bytes_max) + " bytes");
  }
  std::vector<RowSlice> slices;
  for (uint32_t first = 0; first < rows; first += most) slices.push_back({first, std::min(most, rows - first)});
  return slices;
}

struct RowWindow {
  gpu::Binding binding;
  uint32_t offset = 0;  // elements from the start of the binding to the first row of the slice
};

inline RowWindow bind_rows(const compute::View& view, RowSlice slice, gpu::Access access, const gpu::Capabilities& capabilities) {
  const std::shared_ptr<gpu::Storage>& storage = storage_of(view.buffer);
  const uint64_t first = (view.offset + static_cast<uint64_t>(slice.first) * view.stride) * 4;
  RowWindow bound{{storage, access, 0, 0}, static_cast<uint32_t>(first / 4)};
  if (storage->bytes() <= capabilities.storage_binding_bytes_max) return bound;
  bound.binding.offset = first / capabilities.storage_offset_alignment * capabilities.storage_offset_alignment;
  bound.binding.size = first - bound.binding.offset + window_bytes(view, slice.count);
  bound.offset = static_cast<uint32_t>((first - bound.binding.offset) / 4);
  return bound;
}

// Whether every row starts at a multiple of four elements and holds whole quads, so that the buffer can be read as vec4<f32>.
inline bool quad_aligned(const compute::View& view) { return view.offset % 4 == 0 && view.stride % 4 == 0 && view.cols % 4 == 0; }

// WebGPU refuses one buffer bound both for reading and for writing in a dispatch, even in disjoint parts.
inline Status require_other_buffer(std::string_view operation, const compute::View& out,
                                   std::initializer_list<const compute::Buffer*> inputs) {
  for (const compute::Buffer* input : inputs) {
    if (input != nullptr && input == out.buffer) {
      return make_error(ErrorCode::unsupported, std::string(operation) + ": the output lies in the buffer of an input");
    }
  }
  return {};
}

// Whether x is the output's own view, which is then bound once. Errors: unsupported for another view of the same buffer.
inline Result<bool> is_in_place(std::string_view operation, const compute::View& x, const compute::View& out) {
  if (x.buffer != out.buffer) return false;
  if (x.offset == out.offset && x.stride == out.stride) return true;
  return make_error(ErrorCode::unsupported,
                    std::string(operation) + ": expected x to be the output's view or in another buffer, found another view of one buffer");
}

// The variant to use: `forced` when it is not empty and listed, else `chosen`.
inline Result<std::string> pick_variant(std::string_view operation, std::string_view forced, std::string_view chosen,
                                        const gpu::Capabilities& capabilities,
                                        std::vector<std::string> (*variants)(const gpu::Capabilities&)) {
  if (forced.empty()) return std::string(chosen);
  const std::vector<std::string> available = variants(capabilities);
  if (std::find(available.begin(), available.end(), forced) == available.end()) {
    return make_error(ErrorCode::not_found, std::string(operation) + ": this adapter has no variant " + std::string(forced));
  }
  return std::string(forced);
}

inline Result<const gpu::ShaderSource*> require_shader(std::string_view kernel, std::string_view variant) {
  const gpu::ShaderSource* shader = find_shader(kernel, variant);
  if (shader) return shader;
  return make_error(ErrorCode::internal, "no shader " + std::string(kernel) + "/" + std::string(variant) + " is built in");
}

}  // namespace chorus::kernels
