#include "generation/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/test_tools.h"
#include "generation/generation_test_tools.h"

namespace chorus::generation {
namespace {

using formats::testing::expect_error;

uint32_t chosen(std::vector<float> row, const SamplingOptions& options, uint32_t step = 0, const TokenHistory& history = {}) {
  auto choice = choose_on_host(row, options, step, history);
  EXPECT_TRUE(choice.ok()) << (choice.ok() ? "" : choice.error().to_line());
  return choice.ok() ? choice->token : UINT32_MAX;
}

TEST(Sampling, GreedyTakesTheFirstOfEquals) {
  EXPECT_EQ(chosen({1, 3, 2, 3}, {}), 1u);
  EXPECT_EQ(chosen({-5, -5}, {}), 0u);
}

TEST(Sampling, DrawsFollowTheProbabilities) {
  const std::vector<float> row = {std::log(0.5f), std::log(0.2f), std::log(0.2f), std::log(0.1f)};
  SamplingOptions options;
  options.temperature = 1;
  options.seed = 42;
  constexpr uint32_t kDraws = 20000;
  std::vector<double> counts(4);
  for (uint32_t step = 0; step < kDraws; ++step) ++counts[chosen(row, options, step)];
  const double expected[] = {0.5, 0.2, 0.2, 0.1};
  for (size_t i = 0; i < 4; ++i) {  // five standard deviations of a binomial count
    EXPECT_NEAR(counts[i], kDraws * expected[i], 5 * std::sqrt(kDraws * expected[i] * (1 - expected[i]))) << i;
  }
}

// Known answers of Philox 4x32-10 with key (seed) and counter (step): the word of counter 0, key 0 is 0x6627e8d5 (Random123, kat_vectors).
TEST(Sampling, TheDrawIsPhilox) {
  std::vector<float> row(1u << 12, 0.0f);  // equal probabilities: the token is the draw times 2^12
  SamplingOptions options;
  options.temperature = 1;
  EXPECT_EQ(chosen(row, options), 0x6627e8d5u >> 20);
  options.seed = 1;
  const uint32_t other = chosen(row, options);
  EXPECT_NE(other, 0x6627e8d5u >> 20);
  EXPECT_EQ(chosen(row, options), other) << "a seed reproduces";
  EXPECT_NE(chosen(row, options, 1), other);
  options.seed = 1ull << 32;
  EXPECT_NE(chosen(row, options), other);
}

TEST(Sampling, FiltersKeepTheMostProbable) {
  const std::vector<float> row = {std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  SamplingOptions options;
  options.temperature = 1;
  const auto kept = [&](const SamplingOptions& how) {
    std::vector<bool> seen(4);
    for (uint32_t step = 0; step < 2000; ++step) seen[chosen(row, how, step)] = true;
    return seen;
  };
  EXPECT_EQ(kept(options), (std::vector<bool>{true, true, true, true}));
  options.top_k = 2;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, true, false}));
  options.top_k = 0;
  options.top_p = 0.65f;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, true, false}));
  options.top_p = 0.75f;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, true, true}));
  options.top_p = 1e-6f;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, false, false}));
  options.top_p = 1;
  options.min_p = 0.6f;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, true, false}));
  options.min_p = 1;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, false, false}));
  options.min_p = 0;
  options.temperature = 0.01f;
  EXPECT_EQ(kept(options), (std::vector<bool>{false, true, false, false}));
}

TEST(Sampling, PenaltiesAndBias) {
  TokenHistory history;
  history.prompt = {0};
  history.answer = {{1, 3}};
  SamplingOptions options;
  options.repetition_penalty = 2;
  EXPECT_EQ(chosen({4, 3, 2.5f, -1}, options, 0, history), 2u);  // 4 / 2, 3 / 2
  EXPECT_EQ(chosen({-1, -1, -1.5f, -3}, options, 0, history), 2u);
  options.repetition_penalty = 1;
  options.presence_penalty = 1;
  EXPECT_EQ(chosen({0, 3, 2.5f, 0}, options, 0, history), 2u);
  EXPECT_EQ(chosen({2.6f, 3, 2.5f, 0}, options, 0, history), 0u) << "the prompt has no presence penalty";
  options.presence_penalty = 0;
  options.frequency_penalty = 0.1f;
  EXPECT_EQ(chosen({0, 3, 2.75f, 0}, options, 0, history), 2u);
  EXPECT_EQ(chosen({0, 3, 2.65f, 0}, options, 0, history), 1u);
  options.frequency_penalty = 0;
  options.logit_bias = {{3, 10.0f}, {1, -10.0f}};
  EXPECT_EQ(chosen({0, 3, 2.5f, 0}, options, 0, history), 3u);
}

TEST(Sampling, LogprobsAreOfTheModelsOwnDistribution) {
  SamplingOptions options;
  options.top_logprobs = 2;
  options.logit_bias = {{3, 100.0f}};
  std::vector<float> row = {std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  auto choice = choose_on_host(row, options, 0, {});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->token, 3u);
  EXPECT_NEAR(choice->logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(choice->top_logprobs.size(), 2u);
  EXPECT_EQ(choice->top_logprobs[0].token, 1u);
  EXPECT_NEAR(choice->top_logprobs[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(choice->top_logprobs[1].token, 2u);
}

TEST(Sampling, RowsWithoutAnAnswerAreErrors) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> row = {1, bad, 2};
    expect_error(choose_on_host(row, {}, 4, {}), "token 5 of the answer");
  }
  std::vector<float> nothing(3, -std::numeric_limits<float>::infinity());
  expect_error(choose_on_host(nothing, {}, 0, {}), "not finite");
}

TEST(Sampling, OptionsAreChecked) {
  const auto refused = [](auto change, const char* name) {
    SamplingOptions options;
    change(options);
    expect_error(check_sampling(options, 10), name);
  };
  EXPECT_TRUE(check_sampling({}, 10).ok());
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-1.0f, nan, infinity}) {
    refused([&](SamplingOptions& o) { o.temperature = bad; }, "temperature");
    refused([&](SamplingOptions& o) { o.top_p = bad; }, "top_p");
    refused([&](SamplingOptions& o) { o.min_p = bad; }, "min_p");
    refused([&](SamplingOptions& o) { o.repetition_penalty = bad; }, "repetition_penalty");
  }
  refused([&](SamplingOptions& o) { o.presence_penalty = nan; }, "presence_penalty");
  refused([&](SamplingOptions& o) { o.frequency_penalty = infinity; }, "frequency_penalty");
  refused([&](SamplingOptions& o) { o.top_p = 0; }, "top_p");
  refused([&](SamplingOptions& o) { o.repetition_penalty = 0; }, "repetition_penalty");
  refused([&](SamplingOptions& o) { o.logit_bias = {{10, 1.0f}}; }, "outside the vocabulary");
  refused([&](SamplingOptions& o) { o.logit_bias = {{1, nan}}; }, "logit_bias");
  refused([&](SamplingOptions& o) { o.top_logprobs = 11; }, "logprobs");
}

}  // namespace
}  // namespace chorus::generation
