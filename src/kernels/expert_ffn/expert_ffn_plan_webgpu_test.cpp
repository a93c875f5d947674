// The plan of expert_ffn without a device.
#include <gtest/gtest.h>

#include <memory>

#include "kernels/common/plan_test_tools.h"
#include "kernels/expert_ffn/expert_ffn_webgpu.h"

namespace chorus::kernels {
namespace {

gpu::Capabilities with_subgroups(uint32_t smallest, uint32_t largest) {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.subgroups = true;
  capabilities.subgroup_size_min = smallest;
  capabilities.subgroup_size_max = largest;
  return capabilities;
}

// Buffers, bank and arguments of one call.
struct Call {
  Call(uint32_t rows, uint32_t top_k, const compute::ExpertShape& shape, uint32_t slots, uint32_t slots_per_shard)
      : x(std::make_shared<FakeStorage>(uint64_t{rows} * shape.hidden * 4 + 64)),
        out(std::make_shared<FakeStorage>(uint64_t{rows} * top_k * shape.hidden * 4 + 64)),
        routes(std::make_shared<FakeStorage>(uint64_t{rows} * top_k * 4 + 64)) {
    std::vector<WebgpuExpertBank::Shard> shards;
    for (uint32_t first = 0; first < slots; first += slots_per_shard) {
      const uint32_t count = std::min(slots_per_shard, slots - first);
      shards.push_back({first, count, std::make_shared<FakeStorage>(count * compute::ExpertRecord(shape).bytes)});
    }
    bank = std::make_unique<WebgpuExpertBank>(shape, slots, std::move(shards));
    args.bank = bank.get();
    args.top_k = top_k;
    args.x = {&x, 0, rows, shape.hidden, shape.hidden};
    args.slots = &routes;
    args.out = {&out, 0, rows * top_k, shape.hidden, shape.hidden};
  }
  WebgpuBuffer x, out, routes;
  std::unique_ptr<WebgpuExpertBank> bank;
  compute::ExpertFfnArgs args;
};

const compute::ExpertShape kShape{2048, 1024, DType::f16, false};

TEST(ExpertFfnPlan, TheRowCountAloneChoosesTheVariant) {
  const gpu::Capabilities subgroups = with_subgroups(32, 32), none = minimal_capabilities();
  for (const uint32_t slots : {8u, 64u}) {
    const auto variant = [&](uint32_t rows, const gpu::Capabilities& capabilities) {
      return plan_expert_ffn(Call(rows, 8, kShape, slots, slots).args, capabilities, "")->variant;
    };
    EXPECT_EQ(variant(1, none), "row");
    EXPECT_EQ(variant(8, none), "row");
    EXPECT_EQ(variant(1, subgroups), "row_subgroup");
    EXPECT_EQ(variant(8, subgroups), "row_subgroup");
    EXPECT_EQ(variant(9, subgroups), "tile8");
    EXPECT_EQ(variant(96, none), "tile8");
    EXPECT_EQ(variant(97, none), "tile32");
  }
}

TEST(ExpertFfnPlan, SubgroupsOfUnknownSizeAreNotUsed) {
  const Call call(1, 8, kShape, 8, 8);
  EXPECT_EQ(plan_expert_ffn(call.args, with_subgroups(16, 32), "")->variant, "row");
  EXPECT_EQ(plan_expert_ffn(call.args, with_subgroups(16, 32), "row_subgroup").error().code, ErrorCode::not_found);
  EXPECT_EQ(expert_ffn_variants(with_subgroups(4, 4)).back(), "row_subgroup");
}

TEST(ExpertFfnPlan, RowGridsCoverEveryPair) {
  const Call call(2, 8, {2048, 1020, DType::bf16, true}, 8, 8);  // 1020 columns filled up to 1024
  const auto plan = plan_expert_ffn(call.args, with_subgroups(32, 32), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->gate_up->variant, "gate_up_bf16_quad_subgroup");
  EXPECT_EQ(plan->down->variant, "down_bf16_subgroup");
  EXPECT_EQ(plan->sort, nullptr);
  ASSERT_EQ(plan->steps.size(), 1u);
  const ExpertFfnStep& step = plan->steps[0];
  EXPECT_EQ(step.gate_up.params.group_rows, 8u);
  EXPECT_EQ(step.gate_up.params.workgroups, 16u * (1024 / 8));
  EXPECT_EQ(step.down.params.workgroups, 16u * (2048 / 2 / 8));
  EXPECT_EQ(step.middle_bytes, 16u * 1024 * 4);
  EXPECT_EQ(step.table_bytes, 0u);
}

TEST(ExpertFfnPlan, ParametersAreTheRecords) {
  const Call call(1, 2, {36, 20, DType::f16, true}, 4, 4);
  const auto plan = plan_expert_ffn(call.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  const ExpertFfnParams& params = plan->steps[0].gate_up.params;
  EXPECT_EQ(params.gate_up_quads, 5u);  // 40 halves
  EXPECT_EQ(params.down_quads, 3u);     // 24 halves
  EXPECT_EQ(params.middle_stride, 24u);
  EXPECT_EQ(params.down_offset, 200u);             // 40 rows of 80 bytes
  EXPECT_EQ(params.gate_up_bias, 200u + 108u);     // 36 rows of 48 bytes
  EXPECT_EQ(params.down_bias, 200u + 108u + 12u);  // 40 floats, filled up to 192 bytes
  EXPECT_EQ(params.record_quads, 200u + 108u + 12u + 12u);
  EXPECT_EQ(params.flags, kExpertFfnFlagBias);
}

TEST(ExpertFfnPlan, EveryStorageOfTheBankTakesItsSlots) {
  const Call call(12, 2, kShape, 10, 4);
  const auto plan = plan_expert_ffn(call.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->steps.size(), 3u);
  EXPECT_EQ(plan->steps[2].gate_up.params.slot_first, 8u);
  EXPECT_EQ(plan->steps[2].gate_up.params.slot_count, 2u);
  EXPECT_EQ(plan->steps[2].records.storage, call.bank->shards()[2].storage);
}

TEST(ExpertFfnPlan, TilesSufficeForAnyRoutes) {
  const Call call(100, 8, kShape, 64, 64);
  const auto plan = plan_expert_ffn(call.args, minimal_capabilities(), "tile32");
  ASSERT_TRUE(plan.ok());
  const ExpertFfnStep& step = plan->steps[0];
  // 63 experts with one route, the rest to the last: 63 + ceil(737 / 32) = 87 tiles; at most 64 + 800 / 32.
  EXPECT_EQ(step.gate_up.params.workgroups, 89u * (1024 / 32));
  EXPECT_EQ(step.down.params.workgroups, 89u * (2048 / 64));
  EXPECT_EQ(step.gate_up.params.counts_at, 4u + 4 * 89);
  EXPECT_EQ(step.gate_up.params.routes_at, 4u + 4 * 89 + 64);
  EXPECT_EQ(step.table_bytes, (4u + 4 * 89 + 64 + 800) * 4);
}

TEST(ExpertFfnPlan, ManyRowsRunInSlices) {
  const Call call(5000, 8, kShape, 8, 8);  // 328 MB of routes, 164 MB between the products
  const auto plan = plan_expert_ffn(call.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  uint32_t next = 0;
  for (const ExpertFfnStep& step : plan->steps) {
    EXPECT_EQ(step.slice.first, next);
    EXPECT_EQ(step.gate_up.params.route_first, next * 8);
    EXPECT_LE(step.middle_bytes, 64u << 20);
    EXPECT_LE(step.out.size, 128u << 20);
    next += step.slice.count;
  }
  EXPECT_EQ(next, 5000u);
  EXPECT_GT(plan->steps.size(), 2u);
}

TEST(ExpertFfnPlan, OddRowsAreReadByElement) {
  const Call call(1, 1, {37, 16, DType::f32, false}, 2, 2);
  EXPECT_EQ(plan_expert_ffn(call.args, minimal_capabilities(), "")->gate_up->variant, "gate_up_f32_element_workgroup");
}

TEST(ExpertFfnPlan, NoRowsNoSteps) {
  const Call call(0, 2, kShape, 2, 2);
  const auto plan = plan_expert_ffn(call.args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->steps.empty());
}

TEST(ExpertFfnPlan, OutputInTheInputsBufferIsRefused) {
  Call call(1, 1, kShape, 2, 2);
  call.args.out.buffer = &call.x;
  EXPECT_EQ(plan_expert_ffn(call.args, minimal_capabilities(), "").error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace chorus::kernels
