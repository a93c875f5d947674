// The plan of gather_rows without a device.
#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/gather_rows/gather_rows_webgpu.h"

namespace chorus::kernels {
namespace {

gpu::Capabilities adapter_with(uint32_t workgroups) {
  gpu::Capabilities adapter;
  adapter.storage_binding_bytes_max = 128ull << 20;
  adapter.workgroups_per_dimension_max = workgroups;
  return adapter;
}

Result<GatherRowsPlan> gather_plan(uint32_t rows, uint32_t cols, uint32_t limit, std::string_view forced = "") {
  WebgpuBuffer x(std::make_shared<FakeStorage>(uint64_t{10} * cols * 4));
  WebgpuBuffer indices(std::make_shared<FakeStorage>(uint64_t{rows} * 4));
  WebgpuBuffer out(std::make_shared<FakeStorage>(uint64_t{rows} * cols * 4));
  return plan_gather_rows({{&x, 0, 10, cols, cols}, &indices, {&out, 0, rows, cols, cols}}, adapter_with(limit), forced);
}

TEST(GatherRowsPlan, AtTheEdgesOfALimit) {
  for (const uint32_t rows : {6u, 7u, 8u, 48u, 49u}) {
    const Result<GatherRowsPlan> plan = gather_plan(rows, 5, 7);
    ASSERT_TRUE(plan.ok());
    ASSERT_EQ(plan->steps.size(), 1u);
    const gpu::Grid& grid = plan->steps[0].grid;
    EXPECT_GE(grid.x * grid.y, rows);
    EXPECT_LE(grid.x, 7u);
    EXPECT_LE(grid.y, 7u);
  }
}

TEST(GatherRowsPlan, ChunksOfWideRows) {
  EXPECT_EQ(gather_plan(3, 256, 65535)->steps.at(0).params.chunks_per_row, 1u);
  EXPECT_EQ(gather_plan(3, 257, 65535)->steps.at(0).params.chunks_per_row, 2u);
  EXPECT_EQ(gather_plan(3, 257, 65535)->steps.at(0).grid.x, 6u);
}

TEST(GatherRowsPlan, NothingToDo) { EXPECT_TRUE(gather_plan(0, 5, 7)->steps.empty()); }

TEST(GatherRowsPlan, UnknownVariantIsRefused) { EXPECT_FALSE(gather_plan(1, 5, 7, "fast").ok()); }

}  // namespace
}  // namespace chorus::kernels
