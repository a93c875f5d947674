#include "kernels/common/cpu_context.h"

#include <cstdlib>
#include <cstring>
#include <limits>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace chorus::kernels {
namespace {

constexpr uint64_t kCacheLine = 64;
constexpr uint64_t kHugePage = 2ull << 20;

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

bool MemoryAccount::take(uint64_t bytes) {
  uint64_t now = in_use_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || now > limit_ - bytes) return false;
  } while (!in_use_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
  uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < now + bytes && !peak_.compare_exchange_weak(peak, now + bytes, std::memory_order_relaxed)) {
  }
  return true;
}

Result<HostMemory> HostMemory::create(const std::shared_ptr<MemoryAccount>& account, uint64_t bytes, std::string_view label,
                                      Content content) {
  const auto refuse = [&](const char* why) {
    return make_error(ErrorCode::out_of_memory, "memory of \"" + std::string(label) + "\": " + std::to_string(bytes) + " bytes asked, " +
                                                    std::to_string(account->in_use()) + " of " + std::to_string(account->limit()) +
                                                    " in use, " + why);
  };
  if (bytes > std::numeric_limits<uint64_t>::max() - kHugePage) return refuse("expected a smaller size");
  // Large pieces start on a page that the system can make huge: weights are read front to back at memory speed.
  const uint64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
  const uint64_t rounded = round_up(std::max<uint64_t>(bytes, 1), kCacheLine);
  if (!account->take(rounded)) return refuse("expected to stay inside the limit");
  void* data = std::aligned_alloc(alignment, round_up(rounded, alignment));
  if (!data) {
    account->give(rounded);
    return refuse("the system refused");
  }
#if defined(__linux__)
  if (alignment == kHugePage) madvise(data, round_up(rounded, alignment), MADV_HUGEPAGE);
#endif
  if (content == Content::zeros) std::memset(data, 0, rounded);
  HostMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = rounded;
  memory.account_ = account;
  return memory;
}

HostMemory::~HostMemory() {
  if (!data_) return;
  std::free(data_);
  account_->give(bytes_);
}

Result<std::byte*> CpuScratch::acquire(std::string_view slot, uint64_t bytes) {
  auto found = slots_.find(slot);
  if (found == slots_.end()) found = slots_.emplace(std::string(slot), HostMemory()).first;
  HostMemory& memory = found->second;
  if (memory.data() && memory.bytes() >= bytes) return memory.data();
  memory = HostMemory();  // give the old piece back first
  CHORUS_ASSIGN(memory, HostMemory::create(account_, bytes, slot, HostMemory::Content::undefined));
  return memory.data();
}

Result<float*> CpuScratch::acquire_floats(std::string_view slot, uint64_t count) {
  if (count > std::numeric_limits<uint64_t>::max() / 8) {
    return make_error(ErrorCode::out_of_memory,
                      "memory of \"" + std::string(slot) + "\": expected fewer than 2^61 elements, found " + std::to_string(count));
  }
  CHORUS_ASSIGN(std::byte * data, acquire(slot, count * sizeof(float)));
  return reinterpret_cast<float*>(data);
}

}  // namespace chorus::kernels
