// Durations from raw timestamps, without a device.
#include "gpu/timestamps.h"

#include <gtest/gtest.h>

namespace chorus::gpu {
namespace {

TEST(Durations, PlainPairs) {
  const std::vector<uint64_t> stamps = {100, 150, 160, 200};
  EXPECT_EQ(durations_from_timestamps(stamps), (std::vector<double>{50, 40}));
}

TEST(Durations, ABeginBeforeThePreviousEndCountsFromThere) {
  // Both passes were stamped when they were queued.
  const std::vector<uint64_t> stamps = {100, 1000, 100, 1500};
  EXPECT_EQ(durations_from_timestamps(stamps), (std::vector<double>{900, 500}));
}

TEST(Durations, BackwardPairsCountAsZero) {
  const std::vector<uint64_t> stamps = {100, 90, 95, 120};
  EXPECT_EQ(durations_from_timestamps(stamps), (std::vector<double>{0, 25}));
}

TEST(Durations, None) { EXPECT_TRUE(durations_from_timestamps({}).empty()); }

}  // namespace
}  // namespace chorus::gpu
