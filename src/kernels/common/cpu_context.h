// What the cpu half of a kernel folder works with. Each folder offers, for its operation:
//   <op>_cpu(context, args) -> Status: carries it out at once; the arguments were checked (compute/check.h) by the backend.
// Owns: host memory with accounting, the buffer and weight types of the cpu backend. Must not know: the backend itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/thread_pool.h"
#include "compute/backend.h"

namespace chorus::kernels {

// Bytes held by everything of one backend, against a limit. Outlives the backend: every piece of memory holds a share.
class MemoryAccount {
 public:
  explicit MemoryAccount(uint64_t limit) : limit_(limit) {}
  bool take(uint64_t bytes);
  void give(uint64_t bytes) { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  uint64_t limit() const { return limit_; }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> in_use_{0};
  std::atomic<uint64_t> peak_{0};
};

// Host memory, aligned to 64 bytes, rounded up to whole cache lines.
class HostMemory {
 public:
  enum class Content { zeros, undefined };

  HostMemory() = default;
  // Errors: out_of_memory, also when the account's limit would be passed.
  static Result<HostMemory> create(const std::shared_ptr<MemoryAccount>& account, uint64_t bytes, std::string_view label,
                                   Content content = Content::zeros);
  HostMemory(HostMemory&& other) noexcept { swap(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    HostMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~HostMemory();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(HostMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    account_.swap(other.account_);
  }

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::shared_ptr<MemoryAccount> account_;
};

class CpuBuffer final : public compute::Buffer {
 public:
  CpuBuffer(uint64_t bytes, HostMemory memory) : Buffer(bytes), memory_(std::move(memory)) {}
  std::byte* data() const { return memory_.data(); }

 private:
  HostMemory memory_;
};

// Row n of the matrix is column n % 32 of panel n / 32; a panel is [cols][32], so that 32 outputs read one stream from front to back.
// The last panel is filled up with zeros. f32, or the 16 bits of f16 and bf16.
class CpuWeight final : public compute::Weight {
 public:
  static constexpr uint32_t kPanelWidth = 32;

  CpuWeight(uint32_t rows, uint32_t cols, DType dtype, uint64_t bytes, HostMemory memory)
      : Weight(rows, cols, dtype, bytes), memory_(std::move(memory)) {}
  static uint64_t panel_count(uint32_t rows) { return (uint64_t{rows} + kPanelWidth - 1) / kPanelWidth; }
  uint64_t panels() const { return panel_count(rows()); }
  std::byte* panel(uint64_t index) const { return memory_.data() + index * cols() * kPanelWidth * dtype_bytes(dtype()); }

 private:
  HostMemory memory_;
};

inline const float* floats(const compute::Buffer* buffer) {
  return reinterpret_cast<const float*>(static_cast<const CpuBuffer*>(buffer)->data());
}
inline float* floats(compute::Buffer* buffer) { return reinterpret_cast<float*>(static_cast<CpuBuffer*>(buffer)->data()); }
inline const uint32_t* indices(const compute::Buffer* buffer) {
  return reinterpret_cast<const uint32_t*>(static_cast<const CpuBuffer*>(buffer)->data());
}
inline const CpuWeight& cpu_weight(const compute::Weight* weight) { return *static_cast<const CpuWeight*>(weight); }

// A view as pointer and stride.
struct Rows {
  explicit Rows(const compute::View& view) : data(floats(view.buffer) + view.offset), stride(view.stride) {}
  const float* row(uint64_t index) const { return data + index * stride; }
  const float* data;
  uint64_t stride;
};
struct MutableRows {
  explicit MutableRows(const compute::MutableView& view) : data(floats(view.buffer) + view.offset), stride(view.stride) {}
  float* row(uint64_t index) const { return data + index * stride; }
  float* data;
  uint64_t stride;
};

// Working memory by slot name, grow-only, kept between operations. Content is undefined. Valid until the same slot is asked for again.
class CpuScratch {
 public:
  explicit CpuScratch(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  Result<std::byte*> acquire(std::string_view slot, uint64_t bytes);
  Result<float*> acquire_floats(std::string_view slot, uint64_t count);

 private:
  std::shared_ptr<MemoryAccount> account_;
  std::map<std::string, HostMemory, std::less<>> slots_;
};

struct CpuContext {
  ThreadPool& pool;
  CpuScratch& scratch;
  // operation -> variant forced by a test; absent: the operation chooses
  const std::map<std::string, std::string, std::less<>>& forced;

  std::string_view forced_variant(std::string_view operation) const {
    auto found = forced.find(operation);
    return found == forced.end() ? std::string_view{} : std::string_view{found->second};
  }
};

// Cuts `rows` into pieces of about `work_per_task` units and runs body(first, last, worker) on each. The cut depends on the sizes alone.
template <typename Body>
void for_row_ranges(ThreadPool& pool, uint64_t rows, uint64_t work_per_row, const Body& body) {
  constexpr uint64_t kWorkPerTask = 16384;  // elements: some microseconds
  const uint64_t per_task = std::max<uint64_t>(1, kWorkPerTask / std::max<uint64_t>(1, work_per_row));
  pool.run((rows + per_task - 1) / per_task,
           [&](uint64_t task, uint32_t worker) { body(task * per_task, std::min(rows, (task + 1) * per_task), worker); });
}

}  // namespace chorus::kernels
