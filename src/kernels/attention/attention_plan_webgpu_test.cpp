#include <gtest/gtest.h>

#include "kernels/attention/attention_webgpu.h"
#include "kernels/common/plan_test_tools.h"

namespace chorus::kernels {
namespace {

// The 0.8B model's attention: 8 query heads, 2 kv heads, 256 columns.
struct AttentionArguments {
  FakeBuffer q, gate, prefix_k, prefix_v, own_k, own_v, spans, out;
  compute::Sequences sequences;
  compute::AttentionArgs args;
  AttentionArguments(uint32_t prefix, const std::vector<uint32_t>& lengths) {
    uint32_t rows = 0;
    for (const uint32_t length : lengths) {
      sequences.spans.push_back({rows, length});
      rows += length;
    }
    sequences.device = &spans;
    args.shape = {8, 2, 256};
    args.scale = 1.0f / 16;
    args.q = {&q, 0, rows, 2048, 2048};
    args.q_gate = {&gate, 0, rows, 4096, 4096};
    args.prefix_k = {&prefix_k, 0, prefix, 512, 512};
    args.prefix_v = {&prefix_v, 0, prefix, 512, 512};
    args.own_k = {&own_k, 0, rows, 512, 512};
    args.own_v = {&own_v, 0, rows, 512, 512};
    args.sequences = &sequences;
    args.out = {&out, 0, rows, 2048, 2048};
  }
};

gpu::Capabilities large_capabilities() {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.workgroup_storage_bytes_max = 49152;
  capabilities.storage_binding_bytes_max = (2ull << 30) - 4;
  return capabilities;
}

std::vector<AttentionStepKind> kinds(const AttentionPlan& plan) {
  std::vector<AttentionStepKind> result;
  for (const AttentionStep& step : plan.steps) result.push_back(step.kind);
  return result;
}

TEST(AttentionPlan, PartsDependOnLengthsOnlyAndAreWholeTiles) {
  for (const uint32_t keys : {1u, 256u, 2048u, 2049u, 8192u, 100000u}) {
    EXPECT_EQ(prefix_part_keys(keys) % 64, 0u);
    EXPECT_EQ(own_part_keys(keys) % 64, 0u);
  }
  EXPECT_EQ(prefix_part_keys(2048), 256u);
  EXPECT_EQ(prefix_part_keys(8192), 1024u);
  EXPECT_EQ(own_part_keys(257), 256u);
  EXPECT_EQ(own_part_keys(8192), 1024u);
  EXPECT_EQ(own_part_keys(262144), 2048u);
}

TEST(AttentionPlan, AShortStateIsOneDispatch) {
  const AttentionArguments arguments(0, {200});
  const auto plan = plan_attention(arguments.args, large_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(kinds(*plan), std::vector{AttentionStepKind::direct});
  EXPECT_EQ(plan->steps[0].shader->variant, "tile32_direct");
  EXPECT_EQ(plan->steps[0].block_count, 200u * 4 / 32);
  EXPECT_EQ(plan->prefix_slots + plan->own_slots, 0u);
}

TEST(AttentionPlan, QuestionsPackTheirRowsAgainstThePrefix) {
  const AttentionArguments arguments(2048, std::vector<uint32_t>(10, 17));
  const auto plan = plan_attention(arguments.args, large_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(kinds(*plan), (std::vector{AttentionStepKind::prefix, AttentionStepKind::own, AttentionStepKind::merge}));
  EXPECT_EQ(plan->prefix_parts, 8u);
  EXPECT_EQ(plan->steps[0].block_count, (170u * 4 + 31) / 32);  // not ten times three blocks
  EXPECT_EQ(plan->steps[1].sequence_count, 10u);
  EXPECT_EQ(plan->steps[1].block_count, 3u);
}

TEST(AttentionPlan, ShortAndLongSequencesWithoutPrefixTakeTheirOwnWays) {
  const AttentionArguments arguments(0, {600, 3});
  const auto plan = plan_attention(arguments.args, large_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(kinds(*plan), (std::vector{AttentionStepKind::direct, AttentionStepKind::own, AttentionStepKind::merge}));
  EXPECT_EQ(plan->steps[0].first_sequence, 1u);
  EXPECT_EQ(plan->steps[1].part_count, 3u);
  EXPECT_EQ(plan->steps[2].min_length, 257u);
}

TEST(AttentionPlan, FewRowsTakeASmallTile) {
  EXPECT_EQ(plan_attention(AttentionArguments(2048, {4}).args, large_capabilities(), "")->steps[0].shader->variant, "tile16_part");
  EXPECT_EQ(plan_attention(AttentionArguments(2048, {5}).args, large_capabilities(), "")->steps[0].shader->variant, "tile32_part");
}

TEST(AttentionPlan, SoftwareAdaptersTakeTheTileThatCompilesFast) {
  gpu::Capabilities capabilities = large_capabilities();
  capabilities.software = true;
  EXPECT_EQ(plan_attention(AttentionArguments(0, {200}).args, capabilities, "")->steps[0].shader->variant, "tile16_direct");
}

TEST(AttentionPlan, AMinimalAdapterHasEveryTile) {
  EXPECT_EQ(attention_variants(minimal_capabilities()), (std::vector<std::string>{"base", "tile32", "tile16"}));
  const AttentionArguments arguments(0, {200});
  EXPECT_EQ(plan_attention(arguments.args, minimal_capabilities(), "")->steps[0].shader->variant, "tile32_direct");
  EXPECT_EQ(plan_attention(arguments.args, minimal_capabilities(), "tile99").error().code, ErrorCode::not_found);
}

TEST(AttentionPlan, OddStridesTakeTheBaseVariant) {
  AttentionArguments arguments(64, {30});
  arguments.args.own_k.stride = 513;
  EXPECT_EQ(plan_attention(arguments.args, large_capabilities(), "")->steps[0].shader->variant, "base_part");
  EXPECT_EQ(plan_attention(arguments.args, large_capabilities(), "tile32").error().code, ErrorCode::unsupported);
}

TEST(AttentionPlan, HeadDimsThatTheTilesCannotHoldAreRefused) {
  AttentionArguments arguments(0, {30});
  arguments.args.shape.head_dim = 260;
  EXPECT_EQ(plan_attention(arguments.args, large_capabilities(), "").error().code, ErrorCode::unsupported);
}

// Every (row, part) pair is computed once, every key window fits a binding, the scratch keeps its budget.
void expect_complete(const AttentionArguments& arguments, const gpu::Capabilities& capabilities) {
  const auto plan = plan_attention(arguments.args, capabilities, "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_LE(plan->prefix_slots * 1024, 64u << 20);
  EXPECT_LE(plan->own_slots * 1024, 64u << 20);
  const uint32_t rows = arguments.args.q.rows, prefix = arguments.args.prefix_k.rows;
  std::vector<uint64_t> prefix_keys(rows), merged(rows);
  for (const AttentionStep& step : plan->steps) {
    EXPECT_LE(uint64_t{step.key_rows.count} * 2048, capabilities.storage_binding_bytes_max);
    for (uint32_t row = step.rows.first; row < step.rows.first + step.rows.count; ++row) {
      if (step.kind == AttentionStepKind::prefix) prefix_keys[row] += step.key_rows.count;
      if (step.kind == AttentionStepKind::merge) ++merged[row];
    }
  }
  for (uint32_t row = 0; row < rows; ++row) {
    ASSERT_EQ(prefix_keys[row], prefix) << row;
    ASSERT_EQ(merged[row], 1u) << row;
  }
}

TEST(AttentionPlan, LongInputsRunInSlicesAndWindows) {
  expect_complete(AttentionArguments(8192, std::vector<uint32_t>(64, 50)), large_capabilities());
  expect_complete(AttentionArguments(0, {8192}), large_capabilities());
  expect_complete(AttentionArguments(70000, {65, 3000}), minimal_capabilities());  // prefix keys of 143 MB
  gpu::Capabilities narrow = minimal_capabilities();
  narrow.storage_binding_bytes_max = 4u << 20;  // 2,048 keys
  expect_complete(AttentionArguments(5000, {1, 3000, 20}), narrow);
}

TEST(AttentionPlan, OwnKeysBeyondOneBindingAreWindowed) {
  gpu::Capabilities narrow = minimal_capabilities();
  narrow.storage_binding_bytes_max = 4u << 20;
  const AttentionArguments arguments(0, {5000});
  const auto plan = plan_attention(arguments.args, narrow, "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  for (const uint32_t row : {0u, 700u, 4999u}) {
    uint64_t seen = 0;  // keys offered to the row, over all windows that meet its slice
    for (const AttentionStep& step : plan->steps) {
      if (step.kind != AttentionStepKind::own || row < step.rows.first || row >= step.rows.first + step.rows.count) continue;
      EXPECT_EQ(step.key_rows.first, step.first_part * own_part_keys(5000));
      seen += step.key_rows.count;
    }
    EXPECT_GE(seen, row + 1);
  }
}

TEST(AttentionPlan, NoRowsNoSteps) {
  const auto plan = plan_attention(AttentionArguments(64, {}).args, large_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->steps.empty());
}

}  // namespace
}  // namespace chorus::kernels
