#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/rms_norm/rms_norm_webgpu.h"

namespace chorus::kernels {
namespace {

struct RmsNormArguments {
  FakeBuffer in, weight, out;
  compute::RmsNormArgs args;
  RmsNormArguments(uint32_t rows, uint32_t cols, uint32_t stride, uint64_t offset) {
    args.x = {&in, offset, rows, cols, stride};
    args.weight = &weight;
    args.out = {&out, 0, rows, cols, cols};
  }
};

std::string chosen_build(uint32_t cols, uint32_t stride, uint64_t offset) {
  const RmsNormArguments arguments(7, cols, stride, offset);
  const auto plan = plan_rms_norm(arguments.args, minimal_capabilities(), "");
  return plan ? std::string(plan->shader->variant) : plan.error().to_line();
}

TEST(RmsNormPlan, ReadsQuadsWhereEveryRowIsAligned) {
  EXPECT_EQ(chosen_build(1024, 1024, 0), "vec4");
  EXPECT_EQ(chosen_build(64, 68, 4), "vec4_narrow");
  EXPECT_EQ(chosen_build(1024, 1025, 0), "scalar");
  EXPECT_EQ(chosen_build(1024, 1024, 2), "scalar");
  EXPECT_EQ(chosen_build(37, 40, 0), "scalar");
}

TEST(RmsNormPlan, RefusesAForcedVariantThatCannotRun) {
  const RmsNormArguments odd(7, 37, 40, 0);
  EXPECT_EQ(plan_rms_norm(odd.args, minimal_capabilities(), "vec4").error().code, ErrorCode::unsupported);
  EXPECT_EQ(plan_rms_norm(odd.args, minimal_capabilities(), "none such").error().code, ErrorCode::not_found);
  EXPECT_TRUE(plan_rms_norm(odd.args, minimal_capabilities(), "scalar").ok());
}

TEST(RmsNormPlan, SlicesRowsThatDoNotFitOneBinding) {
  const RmsNormArguments arguments(100000, 1024, 1024, 0);  // 400 MB
  const auto plan = plan_rms_norm(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->slices.size(), 3u);
  uint32_t next = 0;
  for (const RowSlice& slice : plan->slices) {
    EXPECT_EQ(slice.first, next);
    EXPECT_LE(uint64_t{slice.count} * 4096 + 256, 128u << 20);
    next += slice.count;
  }
  EXPECT_EQ(next, 100000u);
}

TEST(RmsNormPlan, NoRowsNoDispatch) {
  const RmsNormArguments arguments(0, 64, 64, 0);
  const auto plan = plan_rms_norm(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->slices.empty());
}

TEST(RmsNormPlan, InPlaceOnlyAsTheSameView) {
  RmsNormArguments arguments(7, 64, 64, 0);
  arguments.args.out.buffer = &arguments.in;
  const auto plan = plan_rms_norm(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_TRUE(plan->in_place);
  EXPECT_EQ(plan->shader->variant, "vec4_narrow_in_place");
  arguments.args.out.offset = 7 * 64;
  EXPECT_EQ(plan_rms_norm(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace chorus::kernels
