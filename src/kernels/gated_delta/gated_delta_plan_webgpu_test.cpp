// The plan of gated_delta without a device: routes by length, launches within the scratch budget, windows with carried states, builds.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/common/plan_test_tools.h"
#include "kernels/gated_delta/gated_delta_webgpu.h"

namespace chorus::kernels {
namespace {

constexpr compute::GatedDeltaShape kSmallModel{16, 16, 128, 128};
constexpr compute::GatedDeltaShape kLargeModel{16, 32, 128, 128};

struct GatedDeltaArguments {
  GatedDeltaArguments(const compute::GatedDeltaShape& shape, const std::vector<uint32_t>& lengths, uint32_t gap = 0) {
    uint32_t rows = 0;
    for (uint32_t length : lengths) {
      sequences.spans.push_back({rows, length});
      rows += length;
    }
    sequences.device = &spans;
    const uint32_t values = shape.value_heads * shape.value_dim, cols = 2 * shape.key_heads * shape.key_dim + values;
    args.shape = shape;
    args.qkv = {&qkv, 0, rows, cols, cols + gap};
    args.b = {&b, 0, rows, shape.value_heads, shape.value_heads};
    args.a = {&a, 0, rows, shape.value_heads, shape.value_heads};
    args.a_log = &a_log;
    args.dt_bias = &dt_bias;
    args.state_in = &state_in;
    args.sequences = &sequences;
    args.out = {&out, 0, rows, values, values};
  }
  static std::shared_ptr<gpu::Storage> storage(uint64_t bytes = 2u << 20) { return std::make_shared<FakeStorage>(bytes); }
  WebgpuBuffer qkv{storage(1ull << 30)}, b{storage()}, a{storage()}, a_log{storage()}, dt_bias{storage()}, state_in{storage()},
      state_out{storage()}, spans{storage()}, out{storage(1ull << 30)};
  compute::Sequences sequences;
  compute::GatedDeltaArgs args;
};

gpu::Capabilities capable() {
  gpu::Capabilities capabilities = minimal_capabilities();
  capabilities.storage_binding_bytes_max = 2ull << 30;
  capabilities.workgroup_storage_bytes_max = 48 << 10;
  return capabilities;
}

Result<GatedDeltaPlan> plan_of(const GatedDeltaArguments& setup, const gpu::Capabilities& capabilities = capable(),
                               std::string_view forced = "") {
  return plan_gated_delta(setup.args, capabilities, forced);
}

std::vector<std::string> kernels_of(const GatedDeltaPlan& plan) {
  std::vector<std::string> names;
  for (const GatedDeltaDispatch& dispatch : plan.dispatches) names.push_back(dispatch.kernel + "/" + dispatch.variant);
  return names;
}

using Names = std::vector<std::string>;

TEST(GatedDeltaPlan, LengthPicksTheKernel) {
  GatedDeltaArguments shortest(kSmallModel, {8}), longer(kSmallModel, {9});
  EXPECT_EQ(kernels_of(*plan_of(shortest)), Names{"gated_delta_recurrent/vec4"});
  EXPECT_EQ(kernels_of(*plan_of(longer)), (Names{"gated_delta_prepare/vec4", "gated_delta_scan/columns16"}));
}

TEST(GatedDeltaPlan, SoftwareAdaptersStayRecurrentUnlessTold) {
  GatedDeltaArguments longer(kSmallModel, {9});
  gpu::Capabilities software = capable();
  software.software = true;
  EXPECT_EQ(kernels_of(*plan_of(longer, software)), Names{"gated_delta_recurrent/vec4"});
  EXPECT_EQ(kernels_of(*plan_of(longer, software, "by_length")), (Names{"gated_delta_prepare/vec4", "gated_delta_scan/columns16"}));
}

TEST(GatedDeltaPlan, MixedLengthsSplitWithoutOverlap) {
  GatedDeltaArguments mixed(kSmallModel, {5, 40, 8, 300});
  const Result<GatedDeltaPlan> plan = plan_of(mixed);
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_EQ(plan->dispatches.size(), 3u);
  EXPECT_EQ(plan->dispatches[0].params.max_length + 1, plan->dispatches[1].params.min_length);
  EXPECT_EQ(plan->dispatches[1].params.min_length, plan->dispatches[2].params.min_length);
  EXPECT_EQ(plan->dispatches[2].params.max_length, std::numeric_limits<uint32_t>::max());
}

TEST(GatedDeltaPlan, ChoiceOfBuildDependsOnTheModelAlone) {
  for (uint32_t length : {9u, 64u, 2048u}) {
    GatedDeltaArguments small(kSmallModel, {length}), large(kLargeModel, {length});
    EXPECT_EQ(plan_of(small)->dispatches.back().variant, "columns16") << length;
    EXPECT_EQ(plan_of(large)->dispatches.back().variant, "columns32") << length;
    EXPECT_EQ(plan_of(large, minimal_capabilities())->dispatches.back().variant, "base") << length;
  }
  GatedDeltaArguments wide_keys({2, 2, 256, 128}, {64});
  EXPECT_EQ(plan_of(wide_keys)->dispatches.back().variant, "base");
}

TEST(GatedDeltaPlan, GridsFillTheDevice) {
  GatedDeltaArguments prefill(kSmallModel, {2048}), questions(kLargeModel, {40, 40, 40, 40, 40});
  const Result<GatedDeltaPlan> long_plan = plan_of(prefill), question_plan = plan_of(questions);
  ASSERT_TRUE(long_plan.ok() && question_plan.ok());
  EXPECT_EQ(long_plan->dispatches[0].params.workgroups, 32u * 16u);
  EXPECT_EQ(long_plan->dispatches[1].params.workgroups, 16u * 8u);
  EXPECT_EQ(question_plan->dispatches[0].params.head_splits, 2u);  // few chunks: a workgroup per value head
  EXPECT_GE(question_plan->dispatches[0].params.workgroups, 5u * 32u);
  EXPECT_EQ(question_plan->dispatches[1].params.workgroups, 5u * 32u * 4u);
}

// Slots start at floor(rows before / 64) + sequences before; every sequence's chunks must fit before the next one's first slot.
TEST(GatedDeltaPlan, SlotsOfRaggedSequencesDoNotCollide) {
  const std::vector<uint32_t> lengths = {0, 1, 63, 64, 65, 127, 128, 129, 0, 0, 9, 64, 64, 200};
  GatedDeltaArguments setup(kSmallModel, lengths);
  const Result<GatedDeltaPlan> plan = plan_of(setup, capable(), "chunked");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_EQ(plan->dispatches.size(), 2u);
  uint64_t next_free = 0, row = 0;
  for (size_t index = 0; index < lengths.size(); ++index) {
    const uint64_t first = row / 64 + index;
    EXPECT_GE(first, next_free) << index;
    next_free = first + (lengths[index] + 63) / 64;
    row += lengths[index];
  }
  EXPECT_LE(next_free, plan->dispatches[0].params.slots);
}

TEST(GatedDeltaPlan, LongSequencesRunInWindowsThatCarryTheState) {
  GatedDeltaArguments setup(kLargeModel, {8192});
  setup.args.state_out = &setup.state_out;
  const Result<GatedDeltaPlan> plan = plan_of(setup);
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_LE(plan->scratch_bytes, kGatedDeltaScratchBytes);
  EXPECT_EQ(plan->carry_bytes, setup.state_in.bytes());
  uint32_t token = 0;
  GatedDeltaState left = GatedDeltaState::argument;
  for (size_t index = 1; index < plan->dispatches.size(); index += 2) {
    const GatedDeltaDispatch& scan = plan->dispatches[index];
    EXPECT_EQ(scan.kernel, "gated_delta_scan");
    EXPECT_EQ(scan.variant, "columns32_state");
    EXPECT_EQ(scan.params.token_begin, token);
    EXPECT_EQ(token % kGatedDeltaChunk, 0u);
    EXPECT_EQ(scan.state_in, left);
    EXPECT_TRUE(index == 1 || scan.state_out != scan.state_in);
    left = scan.state_out;
    token += scan.params.token_count;
  }
  EXPECT_EQ(token, 8192u);
  EXPECT_GE(plan->dispatches.size(), 6u);
  EXPECT_EQ(left, GatedDeltaState::argument);
}

TEST(GatedDeltaPlan, ManySequencesRunInLaunchesWithinTheBudget) {
  std::vector<uint32_t> lengths(64, 300);
  lengths.push_back(6000);  // longer than one launch
  lengths.push_back(70);
  GatedDeltaArguments setup(kLargeModel, lengths);
  const Result<GatedDeltaPlan> plan = plan_of(setup);
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_LE(plan->scratch_bytes, kGatedDeltaScratchBytes);
  uint64_t sequences = 0, windows = 0;
  for (const GatedDeltaDispatch& dispatch : plan->dispatches) {
    if (dispatch.kernel != "gated_delta_scan") continue;
    if (dispatch.params.token_begin == 0) sequences += dispatch.params.sequence_count;
    if (dispatch.params.first_sequence == 64 && dispatch.params.sequence_count == 1 && dispatch.params.token_count <= 6000) ++windows;
  }
  EXPECT_EQ(sequences, lengths.size());
  EXPECT_GE(windows, 3u);
}

TEST(GatedDeltaPlan, NoRows) {
  GatedDeltaArguments setup(kSmallModel, {0});
  EXPECT_TRUE(plan_of(setup)->dispatches.empty());
  setup.args.state_out = &setup.state_out;
  EXPECT_EQ(kernels_of(*plan_of(setup)), Names{"gated_delta_recurrent/vec4_state"});
  EXPECT_GT(plan_of(setup, capable(), "chunked")->scratch_bytes, 0u);
}

TEST(GatedDeltaPlan, UnalignedRowsUseScalarLoads) {
  GatedDeltaArguments setup(kSmallModel, {64, 3}, 1);
  EXPECT_EQ(kernels_of(*plan_of(setup)),
            (Names{"gated_delta_recurrent/scalar", "gated_delta_prepare/scalar", "gated_delta_scan/columns16"}));
}

TEST(GatedDeltaPlan, RefusesWhatItCannotRun) {
  GatedDeltaArguments setup(kSmallModel, {64});
  EXPECT_EQ(plan_of(setup, capable(), "parallel").error().code, ErrorCode::not_found);
  EXPECT_EQ(plan_of(setup, minimal_capabilities(), "chunked32").error().code, ErrorCode::unsupported);
  GatedDeltaArguments odd({1, 1, 18, 16}, {64}), wide({1, 1, 260, 16}, {64});
  EXPECT_EQ(plan_of(odd).error().code, ErrorCode::unsupported);
  EXPECT_EQ(plan_of(wide).error().code, ErrorCode::unsupported);
  setup.args.state_out = &setup.state_in;
  EXPECT_EQ(plan_of(setup).error().code, ErrorCode::unsupported);
}

TEST(GatedDeltaPlan, EveryBuildExistsAndBaseFitsTheMinimum) {
  EXPECT_EQ(gated_delta_variants(minimal_capabilities()), (Names{"recurrent", "by_length", "chunked"}));
  EXPECT_EQ(gated_delta_variants(capable()), (Names{"recurrent", "by_length", "chunked", "chunked16", "chunked32"}));
  for (const char* build : {"base", "base_state", "columns16", "columns16_state", "columns32", "columns32_state"}) {
    EXPECT_NE(find_shader("gated_delta_scan", build), nullptr) << build;
  }
}

}  // namespace
}  // namespace chorus::kernels
