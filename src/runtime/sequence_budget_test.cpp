#include "runtime/sequence_budget.h"

#include <gtest/gtest.h>

namespace chorus::runtime {
namespace {

constexpr uint64_t kGiB = 1ull << 30, kMiB = 1ull << 20;

TEST(SequenceBudget, ComesFromTheFreeMemory) {
  EXPECT_EQ(default_sequence_bytes({true, 16 * kGiB, 0}), static_cast<uint64_t>(0.85 * static_cast<double>(16 * kGiB - 256 * kMiB)));
  // What experts and the workspace will take is not for sequences.
  EXPECT_EQ(default_sequence_bytes({true, 16 * kGiB, 12 * kGiB}), static_cast<uint64_t>(0.85 * static_cast<double>(4 * kGiB - 256 * kMiB)));
  for (const uint64_t claimed : {4 * kGiB, 5 * kGiB, UINT64_MAX}) EXPECT_EQ(default_sequence_bytes({true, 4 * kGiB, claimed}), 64 * kMiB);
  EXPECT_EQ(default_sequence_bytes({true, 0, 0}), 64 * kMiB);
  EXPECT_EQ(default_sequence_bytes({true, std::nullopt, 0}), 4 * kGiB);
  EXPECT_EQ(default_sequence_bytes({false, 16 * kGiB, 0}), 0u) << "the device says itself when it has no more";
}

}  // namespace
}  // namespace chorus::runtime
