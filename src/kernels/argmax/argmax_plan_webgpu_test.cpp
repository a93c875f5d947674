#include <gtest/gtest.h>

#include "kernels/argmax/argmax_webgpu.h"
#include "kernels/common/plan_test_tools.h"

namespace chorus::kernels {
namespace {

struct ArgmaxArguments {
  FakeBuffer in, indices;
  compute::ArgmaxArgs args;
  ArgmaxArguments(uint32_t rows, uint32_t cols) {
    args.x = {&in, 0, rows, cols, cols};
    args.indices = &indices;
  }
};

TEST(ArgmaxPlan, LongRowsGoInPieces) {
  auto plan = plan_argmax(ArgmaxArguments(3, 100).args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->merge, nullptr);
  EXPECT_EQ(plan->pieces, 1u);
  plan = plan_argmax(ArgmaxArguments(3, 262144).args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_NE(plan->merge, nullptr);
  EXPECT_EQ(plan->pieces, 256u);
}

TEST(ArgmaxPlan, BothVariantsTakeEveryWidth) {
  for (const uint32_t cols : {1u, 100u, 100000u}) {
    for (const std::string& variant : argmax_variants(minimal_capabilities())) {
      const auto plan = plan_argmax(ArgmaxArguments(1, cols).args, minimal_capabilities(), variant);
      ASSERT_TRUE(plan.ok()) << plan.error().to_line();
      EXPECT_GE(uint64_t{plan->piece} * plan->pieces, cols);
      EXPECT_EQ(plan->merge != nullptr, variant == "split");
    }
  }
}

TEST(ArgmaxPlan, SlicesOfRowsCoverAll) {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.storage_binding_bytes_max = 4096;
  const auto plan = plan_argmax(ArgmaxArguments(2000, 1).args, capabilities, "split");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  uint32_t next = 0;
  for (const RowSlice& slice : plan->slices) {
    EXPECT_EQ(slice.first, next);
    EXPECT_LE(slice.count * 8u, 4096u);
    next += slice.count;
  }
  EXPECT_EQ(next, 2000u);
}

}  // namespace
}  // namespace chorus::kernels
