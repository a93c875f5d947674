#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/layer_norm/layer_norm_webgpu.h"

namespace chorus::kernels {
namespace {

struct LayerNormArguments {
  FakeBuffer in, weight, bias, out;
  compute::LayerNormArgs args;
  LayerNormArguments(uint32_t rows, uint32_t cols, uint32_t stride, uint64_t offset) {
    args.x = {&in, offset, rows, cols, stride};
    args.weight = &weight;
    args.bias = &bias;
    args.out = {&out, 0, rows, cols, cols};
  }
};

std::string chosen(const LayerNormArguments& arguments) {
  const auto plan = plan_layer_norm(arguments.args, minimal_capabilities(), "");
  return plan ? std::string(plan->shader->variant) : plan.error().to_line();
}

TEST(LayerNormPlan, ReadsQuadsWhereEveryRowIsAligned) {
  EXPECT_EQ(chosen(LayerNormArguments(7, 1024, 1024, 0)), "vec4");
  EXPECT_EQ(chosen(LayerNormArguments(7, 1024, 1025, 0)), "scalar");
  EXPECT_EQ(chosen(LayerNormArguments(7, 1024, 1024, 2)), "scalar");
  EXPECT_EQ(chosen(LayerNormArguments(7, 37, 40, 0)), "scalar");
}

TEST(LayerNormPlan, InPlaceOnlyAsTheSameView) {
  LayerNormArguments same(7, 64, 64, 0);
  same.args.out = {&same.in, 0, 7, 64, 64};
  EXPECT_EQ(chosen(same), "vec4_in_place");
  same.args.out.offset = 7 * 64;
  EXPECT_EQ(plan_layer_norm(same.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
}

TEST(LayerNormPlan, RefusesAForcedVariantThatCannotRun) {
  const LayerNormArguments odd(7, 37, 40, 0);
  EXPECT_EQ(plan_layer_norm(odd.args, minimal_capabilities(), "vec4").error().code, ErrorCode::unsupported);
  EXPECT_EQ(plan_layer_norm(odd.args, minimal_capabilities(), "none such").error().code, ErrorCode::not_found);
}

TEST(LayerNormPlan, NoRowsNoDispatch) {
  const auto plan = plan_layer_norm(LayerNormArguments(0, 64, 64, 0).args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->slices.empty());
}

}  // namespace
}  // namespace chorus::kernels
