#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/qk_norm_rope/qk_norm_rope_webgpu.h"

namespace chorus::kernels {
namespace {

struct QkNormRopeArguments {
  FakeBuffer q_gate, kv, q_weight, k_weight, cosine, sine, q_out, k_out, v_out;
  compute::QkNormRopeArgs args;
  QkNormRopeArguments(uint32_t rows, uint32_t head_dim, uint32_t rotary) {
    args.shape = {4, 2, head_dim};
    args.rotary_dim = rotary;
    args.q_gate = {&q_gate, 0, rows, 8 * head_dim, 8 * head_dim};
    args.kv = {&kv, 0, rows, 4 * head_dim, 4 * head_dim};
    args.q_weight = &q_weight;
    args.k_weight = &k_weight;
    args.cosine = {&cosine, 0, rows, rotary / 2, rotary / 2};
    args.sine = {&sine, 0, rows, rotary / 2, rotary / 2};
    args.q_out = {&q_out, 0, rows, 4 * head_dim, 4 * head_dim};
    args.k_out = {&k_out, 0, rows, 2 * head_dim, 2 * head_dim};
    args.v_out = {&v_out, 0, rows, 2 * head_dim, 2 * head_dim};
  }
};

TEST(QkNormRopePlan, OneDispatchForQueriesOneForKeys) {
  const QkNormRopeArguments arguments(5, 256, 64);
  const auto plan = plan_qk_norm_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->queries->variant, "vec4_queries");
  EXPECT_EQ(plan->keys->variant, "vec4_keys");
}

TEST(QkNormRopePlan, OneDispatchWhereAllLieInOneBuffer) {
  QkNormRopeArguments arguments(5, 256, 64);
  arguments.args.q_gate = {&arguments.kv, 0, 5, 2048, 3072};
  arguments.args.kv = {&arguments.kv, 2048, 5, 1024, 3072};
  const auto plan = plan_qk_norm_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->all->variant, "vec4_all");
  EXPECT_EQ(plan->queries, nullptr);
  EXPECT_EQ(plan->keys, nullptr);
  arguments.args.v_out.buffer = &arguments.k_out;
  arguments.args.v_out.offset = 5 * 512;
  const auto apart = plan_qk_norm_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(apart.ok());
  EXPECT_EQ(apart->all, nullptr);
  EXPECT_EQ(apart->keys->variant, "vec4_cache");
}

TEST(QkNormRopePlan, WithoutQueriesOnlyKeys) {
  QkNormRopeArguments arguments(5, 256, 64);
  arguments.args.q_out = {};
  arguments.args.q_gate = {};
  const auto plan = plan_qk_norm_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->queries, nullptr);
  EXPECT_EQ(plan->keys->variant, "vec4_keys");
}

TEST(QkNormRopePlan, RotaryHalvesThatAreNoQuadsGoScalar) {
  const QkNormRopeArguments arguments(5, 64, 12);
  const auto plan = plan_qk_norm_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->keys->variant, "scalar_keys");
  EXPECT_EQ(plan_qk_norm_rope(arguments.args, minimal_capabilities(), "vec4").error().code, ErrorCode::unsupported);
}

TEST(QkNormRopePlan, KeysAndValuesOfOneBufferAreBoundOnce) {
  QkNormRopeArguments arguments(5, 64, 16);
  arguments.args.v_out.buffer = &arguments.k_out;
  arguments.args.v_out.offset = 5 * 128;
  const auto plan = plan_qk_norm_rope(arguments.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->one_cache);
  EXPECT_EQ(plan->keys->variant, "vec4_cache");
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.storage_binding_bytes_max = 64 << 10;
  EXPECT_EQ(plan_qk_norm_rope(arguments.args, capabilities, "").error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
