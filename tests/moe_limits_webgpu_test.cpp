// Mixture of experts under narrow limits: banks of several storages, folded grids, slices of rows, and: tiles of every size give the same
// bits.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "selftest/expert_tools.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

using selftest::Random;

struct Call {
  compute::ExpertShape shape;
  uint32_t slots, rows, top_k;
};

Result<std::vector<float>> run_experts(compute::Backend& backend, const Call& call) {
  Random random(19);
  std::vector<selftest::Expert> experts;
  for (uint32_t slot = 0; slot < call.slots; ++slot) experts.push_back(selftest::random_expert(call.shape, random));
  CHORUS_ASSIGN(auto bank, selftest::upload_bank(backend, call.shape, experts));
  std::vector<uint32_t> slots;
  for (uint32_t route = 0; route < call.rows * call.top_k; ++route) slots.push_back(static_cast<uint32_t>(random.next() % call.slots));
  CHORUS_ASSIGN(auto x, selftest::upload(backend, random.vector(size_t{call.rows} * call.shape.hidden)));
  CHORUS_ASSIGN(auto slot_buffer, selftest::upload_u32(backend, slots));
  CHORUS_ASSIGN(auto out, backend.create_buffer(slots.size() * call.shape.hidden * 4, "out"));
  compute::ExpertFfnArgs args;
  args.bank = bank.get();
  args.top_k = call.top_k;
  args.x = {x.get(), 0, call.rows, call.shape.hidden, call.shape.hidden};
  args.slots = slot_buffer.get();
  args.out = {out.get(), 0, call.rows * call.top_k, call.shape.hidden, call.shape.hidden};
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->expert_ffn(args));
  CHORUS_TRY(batch->submit());
  return selftest::download(backend, *out);
}

Result<std::vector<float>> run_with(const Call& call, uint64_t binding_bytes, uint32_t workgroups_per_dimension) {
  gpu::DeviceOptions options = tests::test_device_options();
  options.storage_binding_bytes_cap = binding_bytes;
  options.workgroups_per_dimension_cap = workgroups_per_dimension;
  CHORUS_ASSIGN(auto backend, backends::create_webgpu_backend(options));
  return run_experts(*backend, call);
}

void expect_same_bits(const Call& call, uint64_t binding_bytes, uint32_t workgroups_per_dimension) {
  const auto whole = run_with(call, 0, 0);
  ASSERT_TRUE(whole.ok()) << whole.error().to_line();
  const auto narrow = run_with(call, binding_bytes, workgroups_per_dimension);
  ASSERT_TRUE(narrow.ok()) << narrow.error().to_line();
  ASSERT_EQ(whole->size(), narrow->size());
  EXPECT_EQ(std::memcmp(whole->data(), narrow->data(), whole->size() * sizeof(float)), 0);
}

// Records of 22 KB: one a storage. 77 KB of results in slices of rows.
TEST(MoeLimitsWebgpu, ManyRowsThroughNarrowBindings) { expect_same_bits({{80, 45, DType::f16, false}, 5, 120, 2}, 24 << 10, 12); }
TEST(MoeLimitsWebgpu, FewRowsThroughNarrowBindings) { expect_same_bits({{80, 45, DType::f16, false}, 5, 6, 3}, 24 << 10, 30); }

TEST(MoeLimitsWebgpu, AnExpertLargerThanABindingIsAnError) {
  const auto found = run_with({{80, 45, DType::f32, false}, 2, 1, 1}, 24 << 10, 0);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::limit_exceeded);
}

TEST(MoeLimitsWebgpu, TilesOfEverySizeGiveTheSameBits) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::vector<float>> results;
    for (const char* variant : {"tile8", "tile32"}) {
      ASSERT_TRUE(backend->force_variant("expert_ffn", variant).ok());
      auto found = run_experts(*backend, {{100, 40, dtype, true}, 3, 40, 2});
      ASSERT_TRUE(backend->force_variant("expert_ffn", "").ok());
      ASSERT_TRUE(found.ok()) << found.error().to_line();
      results.push_back(std::move(*found));
    }
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace chorus
