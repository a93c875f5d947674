#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/select_keys/select_keys_webgpu.h"

namespace chorus::kernels {
namespace {

struct SelectKeysArguments {
  FakeBuffer q{1ull << 32}, keys{1ull << 32}, weights{1ull << 32}, selected{1ull << 32};
  compute::SelectKeysArgs args;
  SelectKeysArguments(uint32_t heads, uint32_t head_dim, uint32_t rows, uint32_t key_rows) {
    args.heads = heads;
    args.head_dim = head_dim;
    args.top_k = 2048;
    args.q = {&q, 0, rows, heads * head_dim, heads * head_dim};
    args.keys = {&keys, 0, key_rows, head_dim, head_dim};
    args.weights = {&weights, 0, rows, heads, heads};
    args.selected = &selected;
  }
};

TEST(SelectKeysPlan, OneStep) {
  const SelectKeysArguments arguments(64, 128, 3, 5000);
  const auto plan = plan_select_keys(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->scores->variant, "vec4");
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].rows.count, 3u);
  ASSERT_EQ(plan->steps[0].keys.size(), 1u);
  EXPECT_EQ(plan->steps[0].keys[0].count, 5000u);
  EXPECT_EQ(plan->scratch_bytes, 3u * 5000 * 4);
}

TEST(SelectKeysPlan, OddHeadsTakeTheBase) {
  const SelectKeysArguments arguments(3, 5, 1, 10);
  EXPECT_EQ(plan_select_keys(arguments.args, minimal_capabilities(), "")->scores->variant, "base");
  EXPECT_EQ(plan_select_keys(arguments.args, minimal_capabilities(), "vec4").error().code, ErrorCode::unsupported);
  EXPECT_EQ(plan_select_keys(arguments.args, minimal_capabilities(), "none").error().code, ErrorCode::not_found);
}

// 65,536 keys: 256 rows of scores fit the scratch.
TEST(SelectKeysPlan, RowsComeInSlices) {
  const SelectKeysArguments arguments(4, 128, 600, 65536);
  const auto plan = plan_select_keys(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_EQ(plan->steps.size(), 3u);
  EXPECT_EQ(plan->steps[2].rows.first, 512u);
  EXPECT_EQ(plan->steps[2].rows.count, 88u);
  EXPECT_EQ(plan->scratch_bytes, 64u << 20);
}

TEST(SelectKeysPlan, KeysComeInWindowsOfWholeBlocks) {
  const SelectKeysArguments arguments(4, 128, 1, 400000);
  const auto plan = plan_select_keys(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_EQ(plan->steps.size(), 1u);
  uint32_t next = 0;
  for (const RowSlice& keys : plan->steps[0].keys) {
    EXPECT_EQ(keys.first, next);
    EXPECT_EQ(keys.first % 64, 0u);
    EXPECT_LE(uint64_t{keys.count} * 512, 128u << 20);
    next += keys.count;
  }
  EXPECT_EQ(next, 400000u);
}

TEST(SelectKeysPlan, ListsHaveRoomForTheHorizon) {
  SelectKeysArguments arguments(4, 128, 600, 1000);
  auto plan = plan_select_keys(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->list_length, 1000u);
  EXPECT_EQ(plan->lists, 256u);
  arguments.args.horizon = 1u << 20;
  plan = plan_select_keys(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->list_length, 1u << 20);
  EXPECT_EQ(plan->lists, 2u);
  arguments.args.horizon = 1u << 30;
  EXPECT_EQ(plan_select_keys(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::limit_exceeded);
}

TEST(SelectKeysPlan, NoRowsNoSteps) {
  const SelectKeysArguments arguments(4, 128, 0, 100);
  EXPECT_TRUE(plan_select_keys(arguments.args, minimal_capabilities(), "")->steps.empty());
}

TEST(SelectKeysPlan, ScoresOfARowThatDoNotFitAreRefused) {
  const SelectKeysArguments arguments(4, 4, 1, 20u << 20);
  EXPECT_EQ(plan_select_keys(arguments.args, minimal_capabilities(), "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
