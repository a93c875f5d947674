#include "experts/cached_experts.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "backends/cpu/cpu_backend.h"
#include "experts/cached_test_tools.h"

namespace chorus::experts {
namespace {

using testing::FakeStore;

constexpr compute::ExpertShape kExpertShape{24, 16, DType::f32, false};

std::unique_ptr<compute::Backend> make_cpu_backend() {
  backends::CpuOptions options;
  options.threads = 2;
  return backends::create_cpu_backend(options);
}

TEST(CachedExperts, EveryBudgetGivesTheBitsOfResidentExperts) {
  const auto backend = make_cpu_backend();
  const FakeStore store({8, 0, 8}, kExpertShape);
  const std::array<uint32_t, 7> budgets = {1, 2, 3, 4, 7, 12, 16};
  testing::check_every_budget(*backend, store, budgets);
}

TEST(CachedExperts, AFailingReadEndsItsCallOnly) {
  const auto backend = make_cpu_backend();
  for (const uint32_t slots : {1u, 4u, 6u}) {
    FakeStore store({8, 0, 8}, kExpertShape);
    testing::check_failing_reads(*backend, store, slots);
  }
}

TEST(CachedExperts, RefusedDirectReadsAreSaidOnce) {
  const auto backend = make_cpu_backend();
  FakeStore store({8, 0, 8}, kExpertShape);
  const models::Blueprint blueprint = testing::blueprint_of(store, testing::kTopK);
  std::vector<std::string> lines;
  CachedExperts::Options options{4, 4, false, 2, nullptr, [&](LogLevel level, std::string_view line) {
                                   EXPECT_EQ(level, LogLevel::warning);
                                   lines.emplace_back(line);
                                 }};
  auto cached = CachedExperts::create(*backend, blueprint, store, std::move(options), {});
  ASSERT_TRUE(cached.ok()) << cached.error().to_line();
  const testing::Call call = testing::make_call(store, 2, 2, testing::kTopK, 5);
  const auto run = [&] { return testing::run_pass(*backend, **cached, std::span(&call, 1), kExpertShape.hidden, testing::kTopK).ok(); };
  ASSERT_TRUE(run());
  EXPECT_TRUE(lines.empty());
  store.refuse_direct_reads("fake.safetensors: the system refuses direct reads");
  ASSERT_TRUE(run() && run());
  EXPECT_EQ(lines, std::vector<std::string>{"fake.safetensors: the system refuses direct reads; experts are read through the page cache"});
}

TEST(CachedExperts, ARouteToNoExpertIsAnError) {
  const auto backend = make_cpu_backend();
  const FakeStore store({8, 0, 8}, kExpertShape);
  auto cached = CachedExperts::create(*backend, testing::blueprint_of(store, 3), store, {4, 4, true, 1, nullptr}, {});
  ASSERT_TRUE(cached.ok());
  auto call = testing::make_call(store, 0, 1, 3, 1);
  call.routes[1] = 8;
  const auto out = testing::run_pass(*backend, **cached, std::span(&call, 1), kExpertShape.hidden, 3);
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("layer 0: the router chose expert 8 of 8"), std::string::npos) << out.error().message;
}

// The same tokens over and over with room for all: repeated passes are hits.
TEST(CachedExperts, RepeatedPassesHit) {
  const auto backend = make_cpu_backend();
  const FakeStore store({8, 8, 8, 8}, kExpertShape);
  auto cached = CachedExperts::create(*backend, testing::blueprint_of(store, 3), store, {32, 32, true, 2, nullptr}, {});
  ASSERT_TRUE(cached.ok());
  std::vector<testing::Call> pass;
  for (uint32_t layer = 0; layer < 4; ++layer) pass.push_back(testing::make_call(store, layer, 1, 3, layer + 3));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(testing::run_pass(*backend, **cached, pass, kExpertShape.hidden, 3).ok());
  const auto numbers = (*cached)->cache_statistics();
  EXPECT_EQ(numbers.misses, 12u);  // the first pass
  EXPECT_EQ(numbers.hits, 36u);
  EXPECT_EQ(numbers.reads, 12u);
}

// Until every read that was begun has ended, guesses too: a miss begins one, as every guess does.
void wait_for_reads(const CachedExperts& cached) {
  for (int i = 0; i < 10000; ++i) {
    const auto numbers = cached.cache_statistics();
    if (numbers.reads == numbers.misses + numbers.prefetches) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL() << "reads do not end";
}

// The same pass over and over with room for two thirds of its experts, and time after each call for what it guessed to be read.
CacheStatistics repeat_pass(compute::Backend& backend, const FakeStore& store, bool prefetch, uint32_t passes) {
  auto cached = CachedExperts::create(backend, testing::blueprint_of(store, 3), store, {8, 8, prefetch, 2, nullptr}, {});
  EXPECT_TRUE(cached.ok());
  for (uint32_t i = 0; i < passes; ++i) {
    for (uint32_t layer = 0; layer < 4; ++layer) {
      const auto call = testing::make_call(store, layer, 1, 3, layer + 3);
      EXPECT_TRUE(testing::run_pass(backend, **cached, std::span(&call, 1), kExpertShape.hidden, 3).ok());
      wait_for_reads(**cached);
    }
  }
  return (*cached)->cache_statistics();
}

// A call wants three experts; guesses may take a quarter of the slots: two of three are right and there from the second pass on.
TEST(CachedExperts, WhatTheNextLayerWantsIsThereBeforeItAsks) {
  const auto backend = make_cpu_backend();
  const FakeStore store({8, 8, 8, 8}, kExpertShape);
  constexpr uint32_t kPasses = 8;
  const auto plain = repeat_pass(*backend, store, false, kPasses), guessing = repeat_pass(*backend, store, true, kPasses);
  const uint64_t wanted = 12ull * kPasses;
  EXPECT_EQ(plain.prefetches, 0u);
  EXPECT_GE(guessing.prefetches, 2 * 4 * (kPasses - 1));
  EXPECT_GE(guessing.prefetches_used + 2, guessing.prefetches);  // two are for a call that never comes
  EXPECT_EQ(guessing.hits, guessing.prefetches_used);
  EXPECT_EQ(guessing.misses + guessing.hits, wanted);
  EXPECT_LE(2 * guessing.misses, plain.misses);
}

// Numbers of no meaning, so that a router's guess says nothing about routes that are drawn.
class DrawnRouters final : public formats::WeightSource {
 public:
  bool has(std::string_view) const override { return true; }
  Result<std::vector<uint64_t>> shape(std::string_view) const override { return make_error(ErrorCode::unsupported, "drawn routers"); }
  Result<formats::FileDType> stored_type(std::string_view) const override { return make_error(ErrorCode::unsupported, "drawn routers"); }
  std::vector<std::string> names() const override { return {}; }
  Status read_rows(std::string_view, uint64_t first_row, uint64_t, std::span<float> out) const override {
    testing::Draw draw(static_cast<uint32_t>(first_row) + 99);
    for (float& value : out) value = static_cast<float>(draw.below(257)) / 128.0f - 1;
    return {};
  }
};

TEST(CachedExperts, RoutersGuessOnlyWhileTheirGuessesComeTrue) {
  backends::CpuOptions cpu;
  cpu.threads = 2;
  cpu.profile = true;
  const auto backend = backends::create_cpu_backend(cpu);
  const FakeStore store({16, 16, 16, 16}, kExpertShape);
  const DrawnRouters weights;
  models::Blueprint blueprint = testing::blueprint_of(store, testing::kTopK);
  for (models::LayerSpec& layer : blueprint.layers) std::get<models::MoeSpec>(layer.feed_forward).router.weight = "router";
  auto guess = RouterGuess::create(*backend, blueprint, weights, DType::f32);
  ASSERT_TRUE(guess.ok() && (*guess)->take_routers({}).ok());
  auto guessing = CachedExperts::create(*backend, blueprint, store, {12, 12, true, 2, std::move(guess).value()}, {});
  auto plain = CachedExperts::create(*backend, blueprint, store, {12, 12, false, 2, nullptr}, {});
  ASSERT_TRUE(guessing.ok() && plain.ok());
  constexpr uint32_t kCalls = 400;
  for (uint32_t i = 0; i < kCalls; ++i) {
    const auto call = testing::make_call(store, i % 4, 1 + i % 2, testing::kTopK, i);
    const auto found = testing::run_pass(*backend, **guessing, std::span(&call, 1), kExpertShape.hidden, testing::kTopK);
    const auto expected = testing::run_pass(*backend, **plain, std::span(&call, 1), kExpertShape.hidden, testing::kTopK);
    ASSERT_TRUE(found.ok() && expected.ok());
    ASSERT_TRUE(testing::same_bits(*found, *expected)) << i;
  }
  EXPECT_GE((*guessing)->cache_statistics().prefetches, GuessJudge::kWindow);
  uint32_t guesses = 0;
  const auto times = backend->take_kernel_times();
  ASSERT_TRUE(times.ok());
  for (const compute::KernelTime& time : *times) guesses += time.kernel == "router" ? time.calls : 0;
  EXPECT_GT(guesses, 0u);
  EXPECT_LT(guesses, kCalls / 4);  // three of four calls have a layer after them
}

}  // namespace
}  // namespace chorus::experts
