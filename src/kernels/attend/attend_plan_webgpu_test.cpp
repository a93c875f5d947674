#include <gtest/gtest.h>

#include "kernels/attend/attend_webgpu.h"
#include "kernels/common/plan_test_tools.h"

namespace chorus::kernels {
namespace {

struct AttendArguments {
  FakeBuffer q{1ull << 32}, keys{1ull << 32}, values{1ull << 32}, selected{1ull << 32}, out{1ull << 32};
  compute::AttendArgs args;
  AttendArguments(uint32_t query_heads, uint32_t kv_heads, uint32_t key_dim, uint32_t value_dim, uint32_t rows, uint32_t key_rows) {
    args.query_heads = query_heads;
    args.kv_heads = kv_heads;
    args.key_dim = key_dim;
    args.value_dim = value_dim;
    args.scale = 1;
    args.q = {&q, 0, rows, query_heads * key_dim, query_heads * key_dim};
    args.keys = {&keys, 0, key_rows, kv_heads * key_dim, kv_heads * key_dim};
    args.values = {&values, 0, key_rows, kv_heads * value_dim, kv_heads * value_dim};
    args.out = {&out, 0, rows, query_heads * value_dim, query_heads * value_dim};
  }
};

Result<AttendPlan> plan(const AttendArguments& arguments, std::string_view forced = "") {
  return plan_attend(arguments.args, minimal_capabilities(), forced);
}

TEST(AttendPlan, OneRowTakesABlockAWorkgroupAndJoinsThem) {
  const auto made = plan(AttendArguments(32, 4, 128, 128, 1, 1000));
  ASSERT_TRUE(made.ok()) << made.error().to_line();
  ASSERT_EQ(made->steps.size(), 2u);
  EXPECT_EQ(made->steps[0].shader->variant, "split");
  EXPECT_EQ(made->steps[0].block_count, 16u);
  EXPECT_EQ(made->steps[0].keys.count, 1000u);
  EXPECT_EQ(made->steps[0].workgroups, 4u * 16);
  EXPECT_EQ(made->steps[1].kind, AttendStepKind::combine);
  EXPECT_EQ(made->steps[1].shader->variant, "vec4");
  EXPECT_TRUE(made->steps[1].first_round && made->steps[1].last_round);
  EXPECT_EQ(made->steps[1].workgroups, 32u * 32 / 64);
  EXPECT_EQ(made->block_slots, 32u * 16);
  EXPECT_EQ(made->gathered_slots, 0u);
}

TEST(AttendPlan, OddSizesAndOffsetsTakeTheBase) {
  EXPECT_EQ(plan(AttendArguments(2, 1, 5, 8, 1, 10))->steps[0].shader->variant, "base");
  EXPECT_EQ(plan(AttendArguments(2, 1, 8, 7, 1, 10))->steps[0].shader->variant, "base");
  AttendArguments shifted(2, 1, 8, 8, 1, 10);
  shifted.args.values.offset = 2;
  EXPECT_EQ(plan(shifted)->steps[0].shader->variant, "base");
  EXPECT_EQ(plan(shifted, "split").error().code, ErrorCode::unsupported);
  EXPECT_EQ(plan(shifted, "none").error().code, ErrorCode::not_found);
  EXPECT_EQ(plan(AttendArguments(2, 1, 8, 8, 1, 10), "base")->steps[1].shader->variant, "scalar");
}

TEST(AttendPlan, NoRowsNoSteps) { EXPECT_TRUE(plan(AttendArguments(2, 1, 8, 8, 0, 10))->steps.empty()); }

// A window's blocks: from the one that holds the first row's first key to the one that holds the last row.
TEST(AttendPlan, AWindowLeavesOutTheBlocksBeforeIt) {
  AttendArguments arguments(2, 1, 8, 8, 2, 1000);
  arguments.args.window = 100;
  auto made = plan(arguments);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->steps[0].first_block, (998 - 99) / 64u);
  EXPECT_EQ(made->steps[0].block_count, 999 / 64u + 1 - 899 / 64u);
  arguments.args.window = 5000;
  made = plan(arguments);
  EXPECT_EQ(made->steps[0].first_block, 0u);
  EXPECT_EQ(made->steps[0].block_count, 16u);
}

// 60,000 keys of 16 KiB in a binding of 128 MiB; what is gathered waits between the rounds.
TEST(AttendPlan, KeysBeyondABindingComeInRounds) {
  const auto made = plan(AttendArguments(32, 32, 128, 128, 1, 60000));
  ASSERT_TRUE(made.ok()) << made.error().to_line();
  EXPECT_EQ(made->gathered_slots, 32u);
  uint32_t next = 0;
  for (size_t i = 0; i < made->steps.size(); i += 2) {
    const AttendStep& step = made->steps[i];
    EXPECT_EQ(step.first_block, next);
    EXPECT_EQ(step.first_round, i == 0);
    EXPECT_EQ(step.last_round, i + 2 == made->steps.size());
    EXPECT_LE(uint64_t{step.keys.count} * 4096 * 4, 128u << 20);
    next += step.block_count;
  }
  EXPECT_EQ(next, (60000u + 63) / 64);
}

TEST(AttendPlan, ManyRowsComeInSlicesThatFitTheScratch) {
  const auto made = plan(AttendArguments(32, 8, 128, 128, 4000, 8000));
  ASSERT_TRUE(made.ok()) << made.error().to_line();
  uint32_t next = 0;
  for (const AttendStep& step : made->steps) {
    if (step.kind != AttendStepKind::split) continue;
    EXPECT_EQ(step.rows.first, next);
    EXPECT_LE(uint64_t{step.rows.count} * 32 * step.block_count * (128 * 4 + 8), 64u << 20);
    next += step.rows.count;
  }
  EXPECT_EQ(next, 4000u);
}

// Tiles need 32 KiB of workgroup memory, enough rows to fill a device, and all keys in one binding.
TEST(AttendPlan, ManyRowsTakeTiles) {
  gpu::Capabilities capabilities = minimal_capabilities();
  EXPECT_EQ(plan(AttendArguments(16, 16, 128, 128, 512, 1024), "tile").error().code, ErrorCode::not_found);
  capabilities.workgroup_storage_bytes_max = 32768;
  const auto chosen = [&](const AttendArguments& arguments) {
    auto made = plan_attend(arguments.args, capabilities, "");
    return made.ok() ? std::string(made->steps[0].shader->variant) : made.error().to_line();
  };
  EXPECT_EQ(chosen(AttendArguments(32, 16, 128, 128, 2048, 2048)), "tile128");
  EXPECT_EQ(chosen(AttendArguments(64, 16, 64, 64, 1024, 1024)), "tile64");
  EXPECT_EQ(chosen(AttendArguments(16, 16, 128, 128, 1, 1024)), "split");
  EXPECT_EQ(chosen(AttendArguments(16, 16, 128, 128, 512, 1024)), "split");
  EXPECT_EQ(chosen(AttendArguments(128, 1, 576, 512, 2048, 2048)), "split");
  EXPECT_EQ(chosen(AttendArguments(64, 16, 128, 128, 2048, 20000)), "split");  // 160 MiB of keys
  EXPECT_EQ(chosen(AttendArguments(64, 16, 126, 128, 2048, 2048)), "base");
  AttendArguments one_buffer(32, 16, 128, 128, 2048, 2048);
  one_buffer.args.out.buffer = &one_buffer.q;
  EXPECT_EQ(chosen(one_buffer), "split");
  capabilities.software = true;
  EXPECT_EQ(chosen(AttendArguments(32, 16, 128, 128, 2048, 2048)), "base");
  const auto made = plan_attend(AttendArguments(32, 4, 128, 256, 100, 1000).args, capabilities, "tile");
  ASSERT_TRUE(made.ok()) << made.error().to_line();
  ASSERT_EQ(made->steps.size(), 1u);
  EXPECT_EQ(made->steps[0].workgroups, 13u * 2 * 4);
  EXPECT_EQ(made->block_slots, 0u);
}

TEST(AttendPlan, WhatNoBindingHoldsIsRefused) {
  EXPECT_EQ(plan(AttendArguments(1, 1, 1 << 20, 4, 1, 100)).error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
