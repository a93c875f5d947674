#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/pointer_scores/pointer_scores_webgpu.h"

namespace chorus::kernels {
namespace {

struct PointerScoresArguments {
  FakeBuffer queries, keys, owners, scores;
  compute::PointerScoresArgs args;
  PointerScoresArguments(uint32_t questions, uint32_t options, uint32_t width) {
    args.queries = {&queries, 0, questions, width, width};
    args.keys = {&keys, 0, options, width, width};
    args.question_of_option = &owners;
    args.scores = &scores;
  }
};

TEST(PointerScoresPlan, ReadsQuadsWhereAligned) {
  EXPECT_EQ(plan_pointer_scores(PointerScoresArguments(2, 9, 256).args, minimal_capabilities(), "")->shader->variant, "vec4");
  EXPECT_EQ(plan_pointer_scores(PointerScoresArguments(2, 9, 255).args, minimal_capabilities(), "")->shader->variant, "scalar");
}

TEST(PointerScoresPlan, SlicesOptionsButNeverQuestions) {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.storage_binding_bytes_max = 64 << 10;
  const auto plan = plan_pointer_scores(PointerScoresArguments(2, 100, 256).args, capabilities, "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->slices.size(), 2u);
  EXPECT_EQ(plan_pointer_scores(PointerScoresArguments(100, 2, 256).args, capabilities, "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
