#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/head_linear/head_linear_webgpu.h"

namespace chorus::kernels {
namespace {

gpu::Capabilities adapter() {
  gpu::Capabilities capabilities;
  capabilities.storage_binding_bytes_max = 128u << 20;
  capabilities.workgroups_per_dimension_max = 65535;
  return capabilities;
}

// 6 heads of 100 columns from 64 of x, the weight in two shards that cut the third head.
struct HeadProduct {
  explicit HeadProduct(uint32_t rows, uint32_t x_head_stride = 64, uint32_t depth = 64) {
    weight = std::make_unique<WebgpuWeight>(
        600, depth, (depth + 3) / 4 * 4, DType::f16, 0,
        std::vector<WebgpuWeight::Shard>{{0, 250, std::make_shared<FakeStorage>()}, {250, 350, std::make_shared<FakeStorage>()}});
    args.heads = 6;
    args.x_head_stride = x_head_stride;
    args.x = {&x, 0, rows, 6 * x_head_stride, 6 * x_head_stride};
    args.weight = weight.get();
    args.out = {&out, 0, rows, 600, 600};
  }
  WebgpuBuffer x{std::make_shared<FakeStorage>()}, out{std::make_shared<FakeStorage>()};
  std::unique_ptr<WebgpuWeight> weight;
  compute::HeadLinearArgs args;
};

TEST(HeadLinearPlan, FewRowsGoInPassesOfEight) {
  const HeadProduct product(9);
  const auto plan = plan_head_linear(product.args, adapter(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->variant, "row");
  ASSERT_EQ(plan->steps.size(), 4u);
  EXPECT_EQ(plan->steps[0].shader->variant, "f16_quad_8");
  EXPECT_EQ(plan->steps[0].grid.x, 8u);  // 250 columns
  EXPECT_EQ(plan->steps[3].shader->variant, "f16_quad_1");
  EXPECT_EQ(plan->steps[3].params.shard_first, 250u);
  EXPECT_EQ(plan->steps[3].params.x_offset, 8u * 384u);
}

TEST(HeadLinearPlan, TilesOfEveryHeadInAShard) {
  const HeadProduct product(100);
  const auto plan = plan_head_linear(product.args, adapter(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->variant, "tile");
  ASSERT_EQ(plan->steps.size(), 2u);
  EXPECT_EQ(plan->steps[0].params.first_head, 0u);
  EXPECT_EQ(plan->steps[0].params.heads, 3u);
  EXPECT_EQ(plan->steps[1].params.first_head, 2u);
  EXPECT_EQ(plan->steps[1].params.heads, 4u);
  EXPECT_EQ(plan->steps[1].grid.x, 2u * 2u * 4u);
}

TEST(HeadLinearPlan, ReadsQuadsWhereEveryHeadIsAligned) {
  for (const auto& [stride, depth, build] : {std::tuple{64u, 64u, "f16_quad"}, {66u, 64u, "f16_element"}, {64u, 62u, "f16_element"}}) {
    const HeadProduct product(100, stride, depth);
    const auto plan = plan_head_linear(product.args, adapter(), "");
    ASSERT_TRUE(plan.ok()) << plan.error().to_line();
    EXPECT_EQ(plan->steps[0].shader->variant, build);
  }
}

TEST(HeadLinearPlan, RefusesOneBufferForInputAndOutput) {
  HeadProduct product(3);
  product.args.out.buffer = &product.x;
  EXPECT_EQ(plan_head_linear(product.args, adapter(), "").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace chorus::kernels
