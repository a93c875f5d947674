#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/segment_softmax/segment_softmax_webgpu.h"

namespace chorus::kernels {
namespace {

TEST(SegmentSoftmaxPlan, FoldsTheSegmentsOverTwoDimensions) {
  const FakeBuffer values, starts;
  FakeBuffer out;
  const compute::SegmentSoftmaxArgs args{&values, &starts, 70001, 140002, &out};
  const auto plan = plan_segment_softmax(args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_LE(plan->grid.x, 65535u);
  EXPECT_LE(plan->grid.y, 65535u);
  EXPECT_GE(uint64_t{plan->grid.x} * plan->grid.y, 70001u);
}

TEST(SegmentSoftmaxPlan, ValuesThatFitNoBindingAreAnError) {
  const FakeBuffer values, starts;
  FakeBuffer out;
  const compute::SegmentSoftmaxArgs args{&values, &starts, 3, 1u << 26, &out};  // 256 MiB
  EXPECT_EQ(plan_segment_softmax(args, minimal_capabilities(), "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
