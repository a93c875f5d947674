// fold_grid at the edges of a limit: every index is covered, no dimension is past the limit, little is wasted.
#include <gtest/gtest.h>

#include "gpu/device.h"

namespace chorus::gpu {
namespace {

uint64_t workgroups(const Grid& grid) { return uint64_t{grid.x} * grid.y * grid.z; }

void expect_covers(uint64_t count, uint32_t limit) {
  const Grid grid = fold_grid(count, limit);
  EXPECT_GE(workgroups(grid), count) << count << " under " << limit;
  EXPECT_LE(grid.x, limit) << count;
  EXPECT_LE(grid.y, limit) << count;
  EXPECT_EQ(grid.z, 1u);
  EXPECT_LT(workgroups(grid) - count, uint64_t{grid.y} + grid.x) << count << " under " << limit;
}

TEST(FoldGrid, ZeroIsEmpty) { EXPECT_EQ(workgroups(fold_grid(0, 65535)), 0u); }

TEST(FoldGrid, StaysFlatUpToTheLimit) {
  for (const uint64_t count : {1u, 2u, 65534u, 65535u}) {
    const Grid grid = fold_grid(count, 65535);
    EXPECT_EQ(grid.x, count);
    EXPECT_EQ(grid.y, 1u);
  }
}

TEST(FoldGrid, CoversEveryIndexPastTheLimit) {
  for (const uint32_t limit : {1u, 2u, 3u, 7u, 64u, 65535u}) {
    const uint64_t square = uint64_t{limit} * limit;
    for (const uint64_t count : {uint64_t{limit} - 1, uint64_t{limit}, uint64_t{limit} + 1, 2 * uint64_t{limit}, square - 1, square}) {
      if (count > 0 && count <= square) expect_covers(count, limit);
    }
  }
  for (const uint64_t count : {130944ull, 65536ull, 65537ull, 1000003ull, 4294836224ull}) expect_covers(count, 65535);
}

TEST(FoldGrid, EveryCountUnderASmallLimit) {
  for (uint64_t count = 1; count <= 49; ++count) expect_covers(count, 7);
}

TEST(FoldGrid, TooManyKeepsADimensionPastTheLimit) {
  const Grid grid = fold_grid(50, 7);  // dispatch() refuses it; a silent cut would lose work
  EXPECT_TRUE(grid.x > 7 || grid.y > 7);
  EXPECT_GE(workgroups(grid), 50u);
}

}  // namespace
}  // namespace chorus::gpu
