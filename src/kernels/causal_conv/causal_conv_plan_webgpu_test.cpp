// The plan of causal_conv without a device.
#include <gtest/gtest.h>

#include "kernels/causal_conv/causal_conv_webgpu.h"
#include "kernels/common/plan_test_tools.h"

namespace chorus::kernels {
namespace {

struct CausalConvArguments {
  explicit CausalConvArguments(uint32_t rows, uint32_t channels, uint32_t stride) {
    sequences = {{{0, rows}}, &spans};
    args.x = {&x, 0, rows, channels, stride};
    args.weight = &weight;
    args.history_in = &history_in;
    args.sequences = &sequences;
    args.out = {&out, 0, rows, channels, stride};
  }
  static std::shared_ptr<gpu::Storage> storage() { return std::make_shared<FakeStorage>(64u << 20); }
  WebgpuBuffer x{storage()}, weight{storage()}, history_in{storage()}, history_out{storage()}, spans{storage()}, out{storage()};
  compute::Sequences sequences;
  compute::CausalConvArgs args;
};

TEST(CausalConvPlan, AlignmentAndHistoryPickTheBuild) {
  CausalConvArguments aligned(100, 96, 100), odd(100, 96, 97);
  EXPECT_EQ(plan_causal_conv(aligned.args, minimal_capabilities(), "")->shader, "vec4");
  EXPECT_EQ(plan_causal_conv(odd.args, minimal_capabilities(), "window")->shader, "scalar");
  aligned.args.history_out = &aligned.history_out;
  odd.args.history_out = &odd.history_out;
  EXPECT_EQ(plan_causal_conv(aligned.args, minimal_capabilities(), "")->shader, "vec4_history");
  EXPECT_EQ(plan_causal_conv(odd.args, minimal_capabilities(), "")->shader, "scalar_history");
  for (const char* shader : {"vec4", "scalar", "vec4_history", "scalar_history"}) {
    EXPECT_NE(find_shader("causal_conv", shader), nullptr) << shader;
  }
}

TEST(CausalConvPlan, TilesCoverTheRowsAndGridsFold) {
  CausalConvArguments setup(2047, 6144, 6144);
  const Result<CausalConvPlan> plan = plan_causal_conv(setup.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->params.tiles, 128u);
  EXPECT_EQ(plan->params.channels, 1536u);
  EXPECT_EQ(plan->grid.x * plan->grid.y, 128u * 24u);
  gpu::Capabilities narrow = minimal_capabilities();
  narrow.workgroups_per_dimension_max = 100;
  const Result<CausalConvPlan> folded = plan_causal_conv(setup.args, narrow, "");
  ASSERT_TRUE(folded.ok());
  EXPECT_LE(folded->grid.x, 100u);
  EXPECT_GE(uint64_t{folded->grid.x} * folded->grid.y, 128u * 24u);
}

TEST(CausalConvPlan, WithoutRowsOnlyHistoryIsMoved) {
  CausalConvArguments setup(0, 8, 8);
  EXPECT_TRUE(plan_causal_conv(setup.args, minimal_capabilities(), "")->shader.empty());
  setup.args.history_out = &setup.history_out;
  EXPECT_EQ(plan_causal_conv(setup.args, minimal_capabilities(), "")->params.tiles, 1u);
}

TEST(CausalConvPlan, RefusesSharedBuffersAndUnknownVariants) {
  CausalConvArguments setup(4, 8, 8);
  EXPECT_EQ(plan_causal_conv(setup.args, minimal_capabilities(), "fft").error().code, ErrorCode::not_found);
  setup.args.history_out = &setup.history_in;
  EXPECT_EQ(plan_causal_conv(setup.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
  setup.args.history_out = nullptr;
  setup.args.out.buffer = &setup.x;
  EXPECT_EQ(plan_causal_conv(setup.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace chorus::kernels
