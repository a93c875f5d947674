// Experts in host memory: one record after the other, read by the kernels where they lie.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

class CpuExpertBank final : public compute::ExpertBank {
 public:
  // Large records start at multiples of a page and have room up to the next one, so that a file can be read into them past the system's
  // cache, in whole blocks.
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kPagedFrom = 16 * kPage;

  CpuExpertBank(const compute::ExpertShape& shape, uint32_t slots, HostMemory memory)
      : ExpertBank(shape, slots), layout_(shape), stride_(stride_of(layout_.bytes)), memory_(std::move(memory)) {}

  static uint64_t stride_of(uint64_t record_bytes) {
    const uint64_t step = record_bytes >= kPagedFrom ? kPage : 64;
    return (record_bytes + step - 1) / step * step;
  }
  const compute::ExpertRecord& layout() const { return layout_; }
  std::byte* record(uint32_t slot) const { return memory_.data() + slot * stride_; }

 private:
  compute::ExpertRecord layout_;
  uint64_t stride_;
  HostMemory memory_;
};

// Memory is not touched before it is filled, so a bank takes what its filled slots take.
inline Result<std::shared_ptr<CpuExpertBank>> create_cpu_expert_bank(const std::shared_ptr<MemoryAccount>& account,
                                                                     const compute::ExpertShape& shape, uint32_t slots,
                                                                     std::string_view label) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(CpuExpertBank::stride_of(compute::ExpertRecord(shape).bytes), uint64_t{slots}, &bytes)) {
    return make_error(ErrorCode::out_of_memory, "expert bank \"" + std::string(label) + "\": expected fewer than 2^64 bytes, found more");
  }
  CHORUS_ASSIGN(auto memory, HostMemory::create(account, bytes, label, HostMemory::Content::undefined));
  return std::make_shared<CpuExpertBank>(shape, slots, std::move(memory));
}

}  // namespace chorus::kernels
