#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/rope/rope_webgpu.h"

namespace chorus::kernels {
namespace {

struct RopeArguments {
  FakeBuffer in, cosine, sine, out;
  compute::RopeArgs args;
  explicit RopeArguments(uint32_t rows) {
    args.heads = 4;
    args.head_dim = 192;
    args.first = 128;
    args.rotary_dim = 64;
    args.x = {&in, 0, rows, 768, 768};
    args.cosine = {&cosine, 0, rows, 32, 32};
    args.sine = {&sine, 0, rows, 32, 32};
    args.out = {&out, 0, rows, 768, 768};
  }
};

TEST(RopePlan, CopiesOnlyWhatHasAnotherPlace) {
  RopeArguments arguments(3);
  auto plan = plan_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->items, 32u + 128u);
  arguments.args.out.buffer = &arguments.in;
  plan = plan_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_TRUE(plan->in_place);
  EXPECT_EQ(plan->items, 32u);
  EXPECT_EQ(plan->shader->variant, "in_place");
}

TEST(RopePlan, RefusesAnotherViewOfTheSameBuffer) {
  RopeArguments arguments(3);
  arguments.args.out.buffer = &arguments.in;
  arguments.args.out.offset = 3 * 768;
  EXPECT_EQ(plan_rope(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
  arguments.args.out = {&arguments.cosine, 96, 3, 768, 768};
  EXPECT_EQ(plan_rope(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
}

TEST(RopePlan, SlicesRowsThatDoNotFitOneBinding) {
  const RopeArguments arguments(100000);  // 307 MB
  const auto plan = plan_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->slices.size(), 3u);
}

}  // namespace
}  // namespace chorus::kernels
