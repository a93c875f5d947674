#include "runtime/sequence_budget.h"

#include <algorithm>

namespace chorus::runtime {
namespace {

constexpr uint64_t kWhenUnknown = 4ull << 30;
constexpr uint64_t kHeadRoom = 256ull << 20;  // for logits and other programs
constexpr uint64_t kLeast = 64ull << 20;      // a system that calls nothing free still gives this much
constexpr double kShare = 0.85;               // of what is left, as for experts

}  // namespace

uint64_t default_sequence_bytes(const SequenceBudgetInput& input) {
  if (!input.in_host_memory) return 0;
  if (!input.free_bytes) return kWhenUnknown;
  const uint64_t taken = input.claimed_bytes > UINT64_MAX - kHeadRoom ? UINT64_MAX : input.claimed_bytes + kHeadRoom;
  const uint64_t left = *input.free_bytes > taken ? *input.free_bytes - taken : 0;
  return std::max(kLeast, static_cast<uint64_t>(static_cast<double>(left) * kShare));
}

}  // namespace chorus::runtime
