// The executor's tests, for any backend: whatever the budget, the same bits as with every expert resident.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "experts/cached_experts.h"
#include "experts/resident_experts.h"
#include "experts/store_test_tools.h"
#include "formats/test_tools.h"

namespace chorus::experts::testing {

using formats::testing::same_bits;

class Draw {
 public:
  explicit Draw(uint32_t seed) : state_(seed) {}
  uint32_t below(uint32_t count) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) % count;
  }

 private:
  uint32_t state_;
};

// A call of one layer: rows and routes drawn from a seed, some routes without an expert.
struct Call {
  uint32_t layer = 0, rows = 0;
  std::vector<float> x;
  std::vector<uint32_t> routes;
};

inline Call make_call(const ExpertStore& store, uint32_t layer, uint32_t rows, uint32_t top_k, uint32_t seed) {
  Draw draw(seed * 977 + layer * 31 + rows);
  Call call{layer, rows, {}, {}};
  for (uint32_t i = 0; i < rows * store.shape().hidden; ++i) call.x.push_back(static_cast<float>(draw.below(257)) / 128.0f - 1);
  for (uint32_t row = 0; row < rows; ++row) {
    std::vector<uint32_t> chosen;
    while (chosen.size() < top_k) {
      const uint32_t expert = draw.below(store.experts(layer));
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    if (rows > 2 && draw.below(8) == 0) chosen.assign(top_k, compute::kNoSlot);  // a row whose router failed
    call.routes.insert(call.routes.end(), chosen.begin(), chosen.end());
  }
  return call;
}

inline models::Blueprint blueprint_of(const ExpertStore& store, uint32_t top_k) {
  models::Blueprint blueprint;
  blueprint.hidden = store.shape().hidden;
  for (uint32_t layer = 0; layer < store.layers(); ++layer) {
    models::LayerSpec spec;
    if (store.experts(layer) > 0) {
      models::MoeSpec moe;
      moe.experts = store.experts(layer);
      moe.top_k = top_k;
      moe.inner = store.shape().inner;
      spec.feed_forward = moe;
    }
    blueprint.layers.push_back(spec);
  }
  return blueprint;
}

// Runs the calls one after the other, as one pass of a model, and returns all outputs. Rows without routes hold 1 before and after.
inline Result<std::vector<float>> run_pass(compute::Backend& backend, models::ExpertExecutor& executor, std::span<const Call> calls,
                                           uint32_t hidden, uint32_t top_k) {
  std::vector<float> all;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(executor.begin_pass(calls[0].rows));
  for (const Call& call : calls) {
    const uint32_t routes = call.rows * top_k;
    CHORUS_ASSIGN(auto x, backend.create_buffer(call.x.size() * sizeof(float), "x"));
    CHORUS_ASSIGN(auto experts, backend.create_buffer(routes * sizeof(uint32_t), "experts"));
    CHORUS_ASSIGN(auto out, backend.create_buffer(uint64_t{routes} * hidden * sizeof(float), "out"));
    std::vector<float> values(uint64_t{routes} * hidden, 1.0f);
    CHORUS_TRY(backend.write(*x, 0, std::as_bytes(std::span(call.x))));
    CHORUS_TRY(backend.write(*experts, 0, std::as_bytes(std::span(call.routes))));
    CHORUS_TRY(backend.write(*out, 0, std::as_bytes(std::span(values))));
    models::ExpertCall args;
    args.layer = call.layer;
    args.top_k = top_k;
    args.x = {x.get(), 0, call.rows, hidden, hidden};
    args.experts = experts.get();
    args.out = {out.get(), 0, routes, hidden, hidden};
    CHORUS_TRY(executor.run(*batch, args));
    CHORUS_TRY(batch->submit());
    CHORUS_TRY(backend.read(*out, 0, std::as_writable_bytes(std::span(values))));
    all.insert(all.end(), values.begin(), values.end());
  }
  executor.end_pass();
  return all;
}

constexpr uint32_t kTopK = 3;

// Passes of different sizes, as prompts and single tokens make them.
inline std::vector<std::vector<Call>> make_passes(const ExpertStore& store) {
  std::vector<std::vector<Call>> passes;
  uint32_t seed = 1;
  for (const uint32_t rows : {9u, 1u, 1u, 40u, 2u, 1u}) {
    passes.emplace_back();
    for (uint32_t layer = 0; layer < store.layers(); ++layer) {
      if (store.experts(layer) > 0) passes.back().push_back(make_call(store, layer, rows, kTopK, seed++));
    }
  }
  return passes;
}

inline ExpertSource source_of(const ExpertStore& store) {
  return [&store](uint32_t layer, uint32_t expert, std::span<std::byte> record) { return read_record(store, {layer, expert}, record); };
}

// Every budget from one expert to all gives the bits of resident experts, with and without prefetching.
inline void check_every_budget(compute::Backend& backend, const ExpertStore& store, std::span<const uint32_t> budgets,
                               uint32_t host_slots = 0) {
  const models::Blueprint blueprint = blueprint_of(store, kTopK);
  const auto passes = make_passes(store);
  const uint32_t hidden = store.shape().hidden;
  auto resident = ResidentExperts::load(backend, blueprint, store.shape().dtype, source_of(store));
  ASSERT_TRUE(resident.ok()) << resident.error().to_line();
  std::vector<std::vector<float>> expected;
  for (const auto& pass : passes) {
    auto out = run_pass(backend, **resident, pass, hidden, kTopK);
    ASSERT_TRUE(out.ok()) << out.error().to_line();
    ASSERT_TRUE(std::any_of(out->begin(), out->end(), [](float value) { return value != 1.0f && value != 0.0f; }));
    expected.push_back(std::move(out).value());
  }
  for (const uint32_t budget : budgets) {
    for (const bool prefetch : {false, true}) {
      CachedExperts::Options options{host_slots ? host_slots : budget, budget, prefetch, 2, nullptr};
      auto cached = CachedExperts::create(backend, blueprint, store, std::move(options), {});
      ASSERT_TRUE(cached.ok()) << cached.error().to_line();
      for (size_t i = 0; i < passes.size(); ++i) {
        auto out = run_pass(backend, **cached, passes[i], hidden, kTopK);
        ASSERT_TRUE(out.ok()) << out.error().to_line();
        EXPECT_TRUE(same_bits(*out, expected[i])) << "budget " << budget << ", prefetch " << prefetch << ", pass " << i;
      }
      const auto numbers = (*cached)->cache_statistics();
      EXPECT_GT(numbers.misses, 0u);
      const bool evicts = (*cached)->in_place() ? numbers.evictions > 0 : (*cached)->device_statistics().evictions > 0;
      EXPECT_EQ(evicts, budget < 16) << "budget " << budget;
    }
  }
}

// An expert that cannot be read ends the call with an error that names it, and nothing else.
inline void check_failing_reads(compute::Backend& backend, testing::FakeStore& store, uint32_t slots) {
  const models::Blueprint blueprint = blueprint_of(store, kTopK);
  const uint32_t hidden = store.shape().hidden;
  auto cached = CachedExperts::create(backend, blueprint, store, {slots, slots, true, 2, nullptr}, {});
  ASSERT_TRUE(cached.ok()) << cached.error().to_line();
  Call call = make_call(store, 2, 2, kTopK, 5);
  call.routes = {0, 1, 2, 5, 6, 7};
  const auto good = run_pass(backend, **cached, std::span(&call, 1), hidden, kTopK);
  ASSERT_TRUE(good.ok()) << good.error().to_line();
  Call other = call;
  other.routes = {3, 4, 0, 1, 2, 6};
  store.fail({2, 4}, 1000);
  const auto bad = run_pass(backend, **cached, std::span(&other, 1), hidden, kTopK);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("layer 2, expert 4"), std::string::npos) << bad.error().message;
  const auto again = run_pass(backend, **cached, std::span(&call, 1), hidden, kTopK);
  ASSERT_TRUE(again.ok()) << again.error().to_line();
  EXPECT_TRUE(same_bits(*good, *again));
  store.fail({2, 4}, 0);
  EXPECT_TRUE(run_pass(backend, **cached, std::span(&other, 1), hidden, kTopK).ok());
}

}  // namespace chorus::experts::testing
