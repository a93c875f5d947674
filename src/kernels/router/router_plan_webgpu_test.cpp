#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/router/router_webgpu.h"

namespace chorus::kernels {
namespace {

struct RouterArguments {
  FakeBuffer logits, experts, weights;
  compute::RouterArgs args;
  RouterArguments(uint32_t rows, uint32_t count) {
    args.logits = {&logits, 0, rows, count, count};
    args.top_k = 2;
    args.experts = &experts;
    args.weights = &weights;
  }
};

TEST(RouterPlan, OneBuildForEveryAdapter) {
  const auto plan = plan_router(RouterArguments(3, 256).args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shader->kernel, "router");
  EXPECT_EQ(plan->slices.size(), 1u);
}

TEST(RouterPlan, ScoresMustFitWorkgroupMemory) {
  EXPECT_TRUE(plan_router(RouterArguments(1, 2048).args, minimal_capabilities(), "").ok());
  EXPECT_EQ(plan_router(RouterArguments(1, 2049).args, minimal_capabilities(), "").error().code, ErrorCode::limit_exceeded);
}

TEST(RouterPlan, ManyRowsRunInSlices) {
  const auto plan = plan_router(RouterArguments(200'000, 256).args, minimal_capabilities(), "");  // 205 MB of logits
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->slices.size(), 2u);
}

TEST(RouterPlan, OutputsNeedBuffersOfTheirOwn) {
  RouterArguments arguments(1, 8);
  arguments.args.experts = &arguments.logits;
  EXPECT_EQ(plan_router(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
  arguments.args.experts = &arguments.weights;
  EXPECT_EQ(plan_router(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace chorus::kernels
