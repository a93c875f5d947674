#include <gtest/gtest.h>

#include "kernels/combine_routes/combine_routes_webgpu.h"
#include "kernels/common/plan_test_tools.h"

namespace chorus::kernels {
namespace {

struct CombineRoutesArguments {
  FakeBuffer routed, weights, shared, out;
  compute::CombineRoutesArgs args;
  CombineRoutesArguments(uint32_t rows, uint32_t top_k, uint32_t cols, uint32_t shared_stride) {
    args.top_k = top_k;
    args.routed = {&routed, 0, rows * top_k, cols, cols};
    args.weights = &weights;
    if (shared_stride > 0) args.shared = {&shared, 0, rows, cols, shared_stride};
    args.out = {&out, 0, rows, cols, cols};
  }
};

TEST(CombineRoutesPlan, NeedsAlignedRowsForQuads) {
  EXPECT_EQ(plan_combine_routes(CombineRoutesArguments(3, 8, 64, 0).args, minimal_capabilities(), "")->shader->variant, "vec4");
  EXPECT_EQ(plan_combine_routes(CombineRoutesArguments(3, 8, 64, 68).args, minimal_capabilities(), "")->shader->variant, "vec4");
  EXPECT_EQ(plan_combine_routes(CombineRoutesArguments(3, 8, 64, 66).args, minimal_capabilities(), "")->shader->variant, "scalar");
  EXPECT_EQ(plan_combine_routes(CombineRoutesArguments(3, 8, 6, 0).args, minimal_capabilities(), "vec4").error().code,
            ErrorCode::unsupported);
}

TEST(CombineRoutesPlan, SlicesByTheRoutesOfARow) {
  const auto plan = plan_combine_routes(CombineRoutesArguments(4096, 8, 2048, 2048).args, minimal_capabilities(), "");  // 268 MB of routes
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->routed.stride, 8u * 2048);
  EXPECT_EQ(plan->routed.cols, 8u * 2048);
  EXPECT_EQ(plan->slices.size(), 3u);
}

TEST(CombineRoutesPlan, RoutesOfARowMustBeCountable) {
  CombineRoutesArguments arguments(1, 32, 8, 0);
  arguments.args.routed.stride = 1u << 28;
  EXPECT_EQ(plan_combine_routes(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
