#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/swiglu/swiglu_webgpu.h"

namespace chorus::kernels {
namespace {

struct SwigluArguments {
  FakeBuffer in, out;
  compute::SwigluArgs args;
  SwigluArguments(uint32_t rows, uint32_t width, uint32_t stride) {
    args.gate_up = {&in, 0, rows, 2 * width, stride};
    args.out = {&out, 0, rows, width, width};
  }
};

TEST(SwigluPlan, NeedsAlignedHalvesForQuads) {
  EXPECT_EQ(plan_swiglu(SwigluArguments(3, 64, 128).args, minimal_capabilities(), "")->shader->variant, "vec4");
  EXPECT_EQ(plan_swiglu(SwigluArguments(3, 6, 12).args, minimal_capabilities(), "")->shader->variant, "scalar");  // up starts at 6
  EXPECT_EQ(plan_swiglu(SwigluArguments(3, 6, 12).args, minimal_capabilities(), "vec4").error().code, ErrorCode::unsupported);
}

TEST(SwigluPlan, SlicesByTheWiderOfItsViews) {
  const SwigluArguments arguments(8192, 3584, 7168);  // 235 MB in, 117 MB out
  const auto plan = plan_swiglu(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->slices.size(), 2u);
  EXPECT_LE(uint64_t{plan->slices[0].count} * 7168 * 4 + 256, 128u << 20);
  EXPECT_EQ(plan->slices[0].count + plan->slices[1].count, 8192u);
}

TEST(SwigluPlan, OneRowThatFitsNoBindingIsAnError) {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.storage_binding_bytes_max = 1024;
  EXPECT_EQ(plan_swiglu(SwigluArguments(3, 1024, 2048).args, capabilities, "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
