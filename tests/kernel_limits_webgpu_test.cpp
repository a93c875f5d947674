// Beyond the known-answer cases: every attention variant gives the same bits, and kernels keep their answers under narrow limits.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "selftest/case_tools.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

using selftest::GuardedOutput;
using selftest::Random;

struct Inputs {
  std::shared_ptr<compute::Buffer> q, gate, keys, values, spans;
  compute::Sequences sequences;
  compute::AttentionArgs args;
};

struct Shape {
  compute::AttentionShape heads;
  uint32_t prefix;
  std::vector<uint32_t> lengths;
};

Result<std::unique_ptr<Inputs>> make_inputs(compute::Backend& backend, const Shape& shape) {
  const uint32_t q_cols = shape.heads.query_heads * shape.heads.head_dim, kv_cols = shape.heads.kv_heads * shape.heads.head_dim;
  auto inputs = std::make_unique<Inputs>();
  uint32_t rows = 0;
  std::vector<uint32_t> pairs;
  for (const uint32_t length : shape.lengths) {
    inputs->sequences.spans.push_back({rows, length});
    pairs.insert(pairs.end(), {rows, length});
    rows += length;
  }
  Random random(11);
  CHORUS_ASSIGN(inputs->q, selftest::upload(backend, random.vector(size_t{rows} * q_cols, -9, 9)));
  CHORUS_ASSIGN(inputs->gate, selftest::upload(backend, random.vector(size_t{rows} * 2 * q_cols, -3, 3)));
  CHORUS_ASSIGN(inputs->keys, selftest::upload(backend, random.vector(size_t{shape.prefix + rows} * kv_cols)));
  CHORUS_ASSIGN(inputs->values, selftest::upload(backend, random.vector(size_t{shape.prefix + rows} * kv_cols)));
  CHORUS_ASSIGN(inputs->spans, selftest::upload_u32(backend, pairs));
  inputs->sequences.device = inputs->spans.get();
  compute::AttentionArgs& args = inputs->args;
  args.shape = shape.heads;
  args.scale = 1 / std::sqrt(static_cast<float>(shape.heads.head_dim));
  args.q = {inputs->q.get(), 0, rows, q_cols, q_cols};
  args.q_gate = {inputs->gate.get(), 0, rows, 2 * q_cols, 2 * q_cols};
  args.prefix_k = {inputs->keys.get(), 0, shape.prefix, kv_cols, kv_cols};
  args.prefix_v = {inputs->values.get(), 0, shape.prefix, kv_cols, kv_cols};
  args.own_k = {inputs->keys.get(), uint64_t{shape.prefix} * kv_cols, rows, kv_cols, kv_cols};
  args.own_v = {inputs->values.get(), uint64_t{shape.prefix} * kv_cols, rows, kv_cols, kv_cols};
  args.sequences = &inputs->sequences;
  return inputs;
}

Result<std::vector<float>> run(compute::Backend& backend, compute::AttentionArgs args) {
  CHORUS_ASSIGN(const GuardedOutput output, selftest::make_output(backend, args.q.rows, args.q.cols, args.q.cols));
  args.out = output.view;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->attention(args));
  CHORUS_TRY(batch->submit());
  return selftest::download(backend, *output.buffer);
}

TEST(AttentionWebgpu, EveryVariantGivesTheSameBits) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  auto inputs = make_inputs(*backend, {{4, 2, 64}, 300, {9, 1, 70}});
  ASSERT_TRUE(inputs.ok()) << inputs.error().to_line();
  std::vector<float> first;
  for (const std::string& variant : backend->variants("attention")) {
    ASSERT_TRUE(backend->force_variant("attention", variant).ok());
    auto found = run(*backend, (*inputs)->args);
    ASSERT_TRUE(found.ok()) << found.error().to_line();
    if (first.empty()) first = *found;
    ASSERT_EQ(first.size(), found->size());
    EXPECT_EQ(std::memcmp(first.data(), found->data(), first.size() * 4), 0) << variant;
  }
  ASSERT_TRUE(backend->force_variant("attention", "").ok());
  ASSERT_FALSE(first.empty()) << "no variant";
}

using RunCases = std::vector<selftest::CaseResult> (*)(compute::Backend&, selftest::CaseSet);

void expect_all_pass(RunCases run_cases, selftest::CaseSet set, uint32_t workgroups_per_dimension, uint64_t binding_bytes) {
  gpu::DeviceOptions options = tests::test_device_options();
  options.workgroups_per_dimension_cap = workgroups_per_dimension;
  options.storage_binding_bytes_cap = binding_bytes;
  auto backend = backends::create_webgpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  const std::vector<selftest::CaseResult> results = run_cases(**backend, set);
  ASSERT_FALSE(results.empty());
  for (const selftest::CaseResult& result : results) {
    EXPECT_TRUE(result.pass) << result.operation << "/" << result.variant << " " << result.name << ": error " << result.error
                             << ", tolerance " << result.tolerance << "; " << result.detail;
  }
}

// Eight workgroups a dimension fold the grids of the small cases.
TEST(NarrowLimitsWebgpu, FoldedGridsOfTheSmallCases) {
  for (const RunCases run_cases : {selftest::run_rms_norm_cases, selftest::run_qk_norm_rope_cases, selftest::run_attention_cases,
                                   selftest::run_pointer_scores_cases, selftest::run_segment_softmax_cases, selftest::run_layer_norm_cases,
                                   selftest::run_rope_cases, selftest::run_argmax_cases, selftest::run_head_linear_cases}) {
    expect_all_pass(run_cases, selftest::CaseSet::quick, 8, 0);
  }
}

TEST(NarrowLimitsWebgpu, FoldedGridsOfElementwiseWork) { expect_all_pass(selftest::run_swiglu_cases, selftest::CaseSet::full, 400, 0); }

// Small bindings cut the small cases into slices of rows.
TEST(NarrowLimitsWebgpu, SlicedRows) {
  expect_all_pass(selftest::run_swiglu_cases, selftest::CaseSet::quick, 0, 1600);
  expect_all_pass(selftest::run_qk_norm_rope_cases, selftest::CaseSet::quick, 0, 20 << 10);
  expect_all_pass(selftest::run_layer_norm_cases, selftest::CaseSet::quick, 0, 1024);
  expect_all_pass(selftest::run_rope_cases, selftest::CaseSet::quick, 0, 1024);
  expect_all_pass(selftest::run_argmax_cases, selftest::CaseSet::quick, 0, 40 << 10);
  expect_all_pass(selftest::run_head_linear_cases, selftest::CaseSet::quick, 0, 4096);
}

Result<std::vector<float>> run_with_binding_limit(const Shape& shape, uint64_t binding_bytes) {
  gpu::DeviceOptions options = tests::test_device_options();
  options.storage_binding_bytes_cap = binding_bytes;
  CHORUS_ASSIGN(auto backend, backends::create_webgpu_backend(options));
  CHORUS_ASSIGN(auto inputs, make_inputs(*backend, shape));
  return run(*backend, inputs->args);
}

void expect_same_bits_in_windows(const Shape& shape, uint64_t binding_bytes) {
  auto whole = run_with_binding_limit(shape, 0);
  ASSERT_TRUE(whole.ok()) << whole.error().to_line();
  auto windows = run_with_binding_limit(shape, binding_bytes);
  ASSERT_TRUE(windows.ok()) << windows.error().to_line();
  ASSERT_EQ(whole->size(), windows->size());
  EXPECT_EQ(std::memcmp(whole->data(), windows->data(), whole->size() * 4), 0);
}

// 190 KiB of prefix keys in windows of one part (128 KiB), queries and gates in slices of rows.
TEST(AttentionWebgpu, PrefixWindowsAndRowSlicesGiveTheSameBits) { expect_same_bits_in_windows({{4, 2, 64}, 300, {9, 1, 70}}, 140 << 10); }

// A sequence whose 70 KiB of own keys pass in windows of two parts (32 KiB).
TEST(AttentionWebgpu, OwnWindowsGiveTheSameBits) { expect_same_bits_in_windows({{2, 1, 16}, 0, {1100, 5}}, 48 << 10); }

// Narrow bindings bring the keys of attend in rounds, its rows in slices; the cases compare calls of different sizes bit by bit.
TEST(NarrowLimitsWebgpu, KeysInRounds) {
  expect_all_pass(selftest::run_attend_cases, selftest::CaseSet::quick, 8, 17 << 10);
  expect_all_pass(selftest::run_select_keys_cases, selftest::CaseSet::quick, 8, 8 << 10);
}

Result<std::vector<float>> run_attend(compute::Backend& backend) {
  constexpr uint32_t kRows = 70, kKeys = 400, kHeads = 4, kKeyHeads = 2, kDim = 16;
  Random random(5);
  CHORUS_ASSIGN(const auto q, selftest::upload(backend, random.vector(kRows * kHeads * kDim, -9, 9)));
  CHORUS_ASSIGN(const auto keys, selftest::upload(backend, random.vector(kKeys * kKeyHeads * kDim)));
  CHORUS_ASSIGN(const auto values, selftest::upload(backend, random.vector(kKeys * kKeyHeads * kDim)));
  CHORUS_ASSIGN(const auto sinks, selftest::upload(backend, random.vector(kHeads)));
  CHORUS_ASSIGN(const GuardedOutput output, selftest::make_output(backend, kRows, kHeads * kDim, kHeads * kDim));
  compute::AttendArgs args;
  args.query_heads = kHeads;
  args.kv_heads = kKeyHeads;
  args.key_dim = args.value_dim = kDim;
  args.scale = 0.25f;
  args.window = 300;
  args.q = {q.get(), 0, kRows, kHeads * kDim, kHeads * kDim};
  args.keys = {keys.get(), 0, kKeys, kKeyHeads * kDim, kKeyHeads * kDim};
  args.values = {values.get(), 0, kKeys, kKeyHeads * kDim, kKeyHeads * kDim};
  args.sinks = sinks.get();
  args.out = output.view;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->attend(args));
  CHORUS_TRY(batch->submit());
  return selftest::download(backend, *output.buffer);
}

TEST(AttendWebgpu, EveryVariantGivesTheSameBits) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  std::vector<float> first;
  for (const std::string& variant : backend->variants("attend")) {
    ASSERT_TRUE(backend->force_variant("attend", variant).ok());
    auto found = run_attend(*backend);
    ASSERT_TRUE(found.ok()) << found.error().to_line();
    if (first.empty()) first = *found;
    ASSERT_EQ(first.size(), found->size());
    EXPECT_EQ(std::memcmp(first.data(), found->data(), first.size() * 4), 0) << variant;
  }
  ASSERT_TRUE(backend->force_variant("attend", "").ok());
  ASSERT_FALSE(first.empty()) << "no variant";
}

// 51 KB of keys in rounds of one block, 18 KB of queries in slices of rows.
TEST(AttendWebgpu, RoundsAndSlicesGiveTheSameBits) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  auto whole = run_attend(*backend);
  ASSERT_TRUE(whole.ok()) << whole.error().to_line();
  gpu::DeviceOptions options = tests::test_device_options();
  options.storage_binding_bytes_cap = 16 << 10;
  auto narrow = backends::create_webgpu_backend(options);
  ASSERT_TRUE(narrow.ok()) << narrow.error().to_line();
  auto rounds = run_attend(**narrow);
  ASSERT_TRUE(rounds.ok()) << rounds.error().to_line();
  ASSERT_EQ(whole->size(), rounds->size());
  EXPECT_EQ(std::memcmp(whole->data(), rounds->data(), whole->size() * 4), 0);
}

}  // namespace
}  // namespace chorus
