#include "experts/expert_budget.h"

#include <algorithm>

#include "base/bytes.h"

namespace chorus::experts {
namespace {

constexpr uint64_t kFreeWhenUnknown = 4ull << 30;
constexpr uint64_t kHeadRoom = 1ull << 30;  // for workspace, caches of keys and values, and other programs
constexpr double kShare = 0.85;             // of what is left then

uint64_t default_bytes(const BudgetInput& input) {
  const uint64_t taken = input.resident_bytes + kHeadRoom;
  const uint64_t free = input.free_bytes.value_or(kFreeWhenUnknown + taken);
  return free > taken ? static_cast<uint64_t>(static_cast<double>(free - taken) * kShare) : 0;
}

Result<uint32_t> slots_of(uint64_t bytes, bool asked, const char* option, const BudgetInput& input) {
  const uint64_t slots = std::min(bytes / input.record_bytes, input.experts);
  if (slots > 0) return static_cast<uint32_t>(std::min<uint64_t>(slots, UINT32_MAX));
  if (asked) {
    return make_error(ErrorCode::invalid_argument, std::string(option) + ": expected at least the " + std::to_string(input.record_bytes) +
                                                       " bytes (" + size_text(input.record_bytes) +
                                                       ") of one expert of this model, found " + std::to_string(bytes));
  }
  return make_error(ErrorCode::out_of_memory, "experts: " + size_text(input.free_bytes.value_or(0)) +
                                                  " of memory are free, which leaves no room for one expert of " +
                                                  size_text(input.record_bytes) + " beside the " + size_text(input.resident_bytes) +
                                                  " of the rest of the model and " + size_text(kHeadRoom) + " of head room");
}

}  // namespace

Result<Budget> plan_budget(const BudgetInput& input) {
  CHORUS_CHECK(input.record_bytes > 0 && input.experts > 0);
  const uint64_t available = default_bytes(input);
  Budget budget;
  if (input.in_place) {
    CHORUS_ASSIGN(budget.host_slots,
                  slots_of(input.host_bytes ? input.host_bytes : available, input.host_bytes != 0, "--expert-ram", input));
    budget.resident = budget.host_slots == input.experts;
    return budget;
  }
  const uint64_t half = available / 2;
  const uint64_t device = input.device_bytes ? input.device_bytes : input.shared_memory ? half : UINT64_MAX;
  CHORUS_ASSIGN(budget.device_slots, slots_of(device, input.device_bytes != 0, "--expert-vram", input));
  budget.resident = budget.device_slots == input.experts;
  if (budget.resident) return budget;
  const uint64_t host = input.host_bytes ? input.host_bytes : input.shared_memory ? half : available;
  CHORUS_ASSIGN(budget.host_slots, slots_of(host, input.host_bytes != 0, "--expert-ram", input));
  return budget;
}

}  // namespace chorus::experts
