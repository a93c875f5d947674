// The gated delta rule beyond its known-answer cases: an adapter with small bindings cuts a sequence into windows and carries the state
// between them; since windows are whole chunks, the bits stay the same.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "selftest/case_tools.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

using selftest::Random;

constexpr compute::GatedDeltaShape kShape{1, 2, 16, 16};
constexpr uint32_t kTextRows = 700, kCols = 2 * 16 + 2 * 16, kValues = 2 * 16;

struct Outputs {
  std::vector<float> out, state;
};

Result<Outputs> run_on(const gpu::DeviceOptions& options) {
  CHORUS_ASSIGN(auto backend, backends::create_webgpu_backend(options));
  Random random(5);
  CHORUS_ASSIGN(auto qkv, selftest::upload(*backend, random.vector(kTextRows * kCols)));
  CHORUS_ASSIGN(auto b, selftest::upload(*backend, random.vector(kTextRows * 2, -2, 2)));
  CHORUS_ASSIGN(auto a, selftest::upload(*backend, random.vector(kTextRows * 2, -4, 2)));
  CHORUS_ASSIGN(auto a_log, selftest::upload(*backend, random.vector(2, -3, 1)));
  CHORUS_ASSIGN(auto dt_bias, selftest::upload(*backend, random.vector(2)));
  CHORUS_ASSIGN(auto state_in, selftest::upload(*backend, random.vector(2 * 16 * 16)));
  CHORUS_ASSIGN(auto state_out, selftest::upload(*backend, std::vector<float>(2 * 16 * 16)));
  const uint32_t pair[] = {0, kTextRows};
  CHORUS_ASSIGN(auto spans, selftest::upload_u32(*backend, pair));
  CHORUS_ASSIGN(auto out, selftest::upload(*backend, std::vector<float>(kTextRows * kValues)));
  const compute::Sequences sequences{{{0, kTextRows}}, spans.get()};
  compute::GatedDeltaArgs args;
  args.shape = kShape;
  args.qkv = {qkv.get(), 0, kTextRows, kCols, kCols};
  args.b = {b.get(), 0, kTextRows, 2, 2};
  args.a = {a.get(), 0, kTextRows, 2, 2};
  args.a_log = a_log.get();
  args.dt_bias = dt_bias.get();
  args.state_in = state_in.get();
  args.state_out = state_out.get();
  args.sequences = &sequences;
  args.out = {out.get(), 0, kTextRows, kValues, kValues};
  CHORUS_TRY(backend->force_variant("gated_delta", "by_length"));
  CHORUS_ASSIGN(auto batch, backend->begin_batch());
  CHORUS_TRY(batch->gated_delta(args));
  CHORUS_TRY(batch->submit());
  Outputs outputs;
  CHORUS_ASSIGN(outputs.out, selftest::download(*backend, *out));
  CHORUS_ASSIGN(outputs.state, selftest::download(*backend, *state_out));
  return outputs;
}

TEST(GatedDeltaWebgpu, WindowsOfALongSequenceGiveTheSameBits) {
  gpu::DeviceOptions options = tests::test_device_options();
  const Result<Outputs> whole = run_on(options);
  ASSERT_TRUE(whole.ok()) << whole.error().to_line();
  options.storage_binding_bytes_cap = 256 << 10;  // 256 KiB: five chunks of this shape in a launch, eleven are needed
  const Result<Outputs> windows = run_on(options);
  ASSERT_TRUE(windows.ok()) << windows.error().to_line();
  ASSERT_EQ(whole->out.size(), windows->out.size());
  EXPECT_EQ(std::memcmp(whole->out.data(), windows->out.data(), whole->out.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(whole->state.data(), windows->state.data(), whole->state.size() * sizeof(float)), 0);
  float largest = 0;
  for (const float value : whole->state) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0.0f);
}

}  // namespace
}  // namespace chorus
