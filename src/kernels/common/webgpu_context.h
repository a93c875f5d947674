// What the webgpu half of a kernel folder works with. Each folder offers, for its operation:
//   plan_<op>(args, capabilities, forced variant) -> Result<...Plan>: pure; picks the variant, the grid(s) and the parameters;
//   record_<op>(context, args) -> Status: checks nothing and decides nothing; binds and dispatches what the plan says.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "gpu/device.h"

namespace chorus::kernels {

// The buffers and weights of the webgpu backend.
class WebgpuBuffer final : public compute::Buffer {
 public:
  explicit WebgpuBuffer(std::shared_ptr<gpu::Storage> storage) : Buffer(storage->bytes()), storage_(std::move(storage)) {}
  const std::shared_ptr<gpu::Storage>& storage() const { return storage_; }

 private:
  std::shared_ptr<gpu::Storage> storage_;
};

// Row-major [rows, cols], cols padded with zeros to `padded_cols` (a multiple of 4), rows split into shards so that each fits one binding.
// f32: one u32-sized element each; f16 and bf16: two elements per u32, low half first.
class WebgpuWeight final : public compute::Weight {
 public:
  struct Shard {
    uint32_t first_row = 0;
    uint32_t row_count = 0;
    std::shared_ptr<gpu::Storage> storage;
  };
  WebgpuWeight(uint32_t rows, uint32_t cols, uint32_t padded_cols, DType dtype, uint64_t bytes, std::vector<Shard> shards)
      : Weight(rows, cols, dtype, bytes), padded_cols_(padded_cols), shards_(std::move(shards)) {}
  uint32_t padded_cols() const { return padded_cols_; }
  const std::vector<Shard>& shards() const { return shards_; }

 private:
  uint32_t padded_cols_;
  std::vector<Shard> shards_;
};

inline const std::shared_ptr<gpu::Storage>& storage_of(const compute::Buffer* buffer) {
  return static_cast<const WebgpuBuffer*>(buffer)->storage();
}
inline const WebgpuWeight& weight_of(const compute::Weight* weight) { return *static_cast<const WebgpuWeight*>(weight); }

// Scratch memory that lives until the next dispatch that asks for the same slot. Grow-only, counted in bytes_in_use.
class ScratchPool {
 public:
  virtual ~ScratchPool() = default;
  virtual Result<std::shared_ptr<gpu::Storage>> acquire(std::string_view slot, uint64_t bytes) = 0;
};

struct WebgpuContext {
  gpu::Device& device;
  ScratchPool& scratch;
  // operation -> variant forced by a test; absent: the plan chooses
  const std::map<std::string, std::string, std::less<>>& forced;
  std::vector<compute::Fallback>& fallbacks;

  std::string_view forced_variant(std::string_view operation) const {
    auto found = forced.find(operation);
    return found == forced.end() ? std::string_view{} : std::string_view{found->second};
  }
};

// The built-in WGSL text of a kernel variant, or null.
const gpu::ShaderSource* find_shader(std::string_view kernel, std::string_view variant);
// All of them, for self-test and offline compilation.
const std::vector<gpu::ShaderSource>& all_shaders();

// A view as a storage binding and the element offset of its first element inside that binding.
struct BoundView {
  gpu::Binding binding;
  uint32_t offset = 0;
};
// The whole buffer when it fits one binding, else an aligned window around the view. Errors: limit_exceeded when the view itself does
// not fit, or when its elements cannot be counted with 32 bits.
Result<BoundView> bind_view(const compute::View& view, gpu::Access access, const gpu::Capabilities& capabilities);
// A whole buffer; limit_exceeded when it does not fit one binding.
Result<gpu::Binding> bind_buffer(const compute::Buffer* buffer, gpu::Access access, const gpu::Capabilities& capabilities);

template <typename Params>
std::span<const std::byte> as_params(const Params& params) {
  static_assert(sizeof(Params) % 16 == 0 && sizeof(Params) <= 256, "pad Params to a multiple of 16 bytes");
  return std::as_bytes(std::span<const Params, 1>(&params, 1));
}

}  // namespace chorus::kernels
