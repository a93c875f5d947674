#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/sample/sample_webgpu.h"

namespace chorus::kernels {
namespace {

struct SampleArguments {
  FakeBuffer logits, rows, indices;
  compute::SampleArgs args;
  SampleArguments(uint32_t row_count, uint32_t vocabulary) {
    args.logits = {&logits, 0, row_count, vocabulary, vocabulary};
    args.rows = &rows;
    args.indices = &indices;
  }
};

TEST(SamplePlan, APieceOfEveryRowAWorkgroup) {
  gpu::Capabilities capabilities = minimal_capabilities();
  auto plan = plan_sample(SampleArguments(3, 248320).args, capabilities, "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_GE(uint64_t{plan->piece} * plan->pieces, 248320u);
  EXPECT_LT(uint64_t{plan->piece} * (plan->pieces - 1), 248320u);
  EXPECT_GE(plan->state_bytes, (16u + plan->pieces) * 4u);
  const uint32_t pieces = plan->pieces;
  capabilities.software = true;
  plan = plan_sample(SampleArguments(3, 248320).args, capabilities, "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_LT(plan->pieces, pieces);
}

TEST(SamplePlan, ManyRowsShareTheScratch) {
  const auto plan = plan_sample(SampleArguments(300, 1000).args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  uint32_t next = 0;
  for (const RowSlice& slice : plan->slices) {
    EXPECT_EQ(slice.first, next);
    EXPECT_LE(slice.count * plan->histogram_bytes, 8u << 20);
    next += slice.count;
  }
  EXPECT_EQ(next, 300u);
}

TEST(SamplePlan, HistogramsThatFitNoBindingAreAnError) {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.storage_binding_bytes_max = 16384;
  EXPECT_EQ(plan_sample(SampleArguments(3, 100).args, capabilities, "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
