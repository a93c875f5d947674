#include "model/budget_suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "experts/expert_system.h"
#include "formats/test_tools.h"
#include "model/suite_tools.h"
#include "models/language_checkpoint.h"
#include "models/language_model.h"

namespace chorus::budget_suite {

namespace {

using formats::testing::same_bits;
using suite_tools::relative_difference;
using suite_tools::some_tokens;

constexpr uint32_t kPromptTokens = 66;
constexpr std::array<uint32_t, 4> kPieces = {kPromptTokens, 64, 7, 1};
constexpr uint32_t kTokensAfter = 2;
constexpr uint32_t kSequences = 8;

struct Setting {
  uint64_t experts = 0;  // in memory; 0: all
  bool prefetch = true;
  std::string text() const { return std::to_string(experts) + " experts, prefetch " + (prefetch ? "on" : "off"); }
};

using Rows = std::vector<float>;
struct Outcome {
  std::map<uint32_t, Rows> by_pieces;  // logits of the prompt's last row and of the tokens after it
  Rows alone, together;
  experts::ExpertStatistics numbers;
};

// One model and what is asked of it.
class Run {
 public:
  explicit Run(models::LanguageModel& model) : model_(model), vocabulary_(model.blueprint().vocabulary) {}

  Result<Rows> in_pieces(uint32_t piece) {
    const auto prompt = some_tokens(kPromptTokens, vocabulary_, 5), after = some_tokens(kTokensAfter, vocabulary_, 6);
    CHORUS_ASSIGN(const auto sequence, model_.new_sequence(kPromptTokens + kTokensAfter));
    Rows rows;
    for (uint32_t done = 0; done < kPromptTokens; done += piece) {
      const models::SequenceStep step{sequence.get(), std::span(prompt).subspan(done, std::min(piece, kPromptTokens - done))};
      CHORUS_ASSIGN(rows, forward({&step, 1}));
    }
    for (const uint32_t token : after) {
      const models::SequenceStep step{sequence.get(), {&token, 1}};
      CHORUS_ASSIGN(const Rows row, forward({&step, 1}));
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }

  // Prompts of different lengths and then one token at a time, in calls of one sequence or of all.
  Result<Rows> sequences(bool together) {
    std::vector<std::unique_ptr<models::Sequence>> sequences;
    std::vector<std::vector<uint32_t>> texts;
    for (uint32_t i = 0; i < kSequences; ++i) {
      CHORUS_ASSIGN(sequences.emplace_back(), model_.new_sequence(40));
      texts.push_back(some_tokens(2 + 5 * i, vocabulary_, 100 + i));
    }
    Rows all;
    for (uint32_t round = 0; round <= kTokensAfter; ++round) {
      std::vector<models::SequenceStep> steps;
      for (uint32_t i = 0; i < kSequences; ++i) {
        if (round > 0) texts[i] = some_tokens(1, vocabulary_, 1000 * round + i);
        steps.push_back({sequences[i].get(), texts[i]});
      }
      const size_t at_a_time = together ? kSequences : 1;
      for (size_t first = 0; first < kSequences; first += at_a_time) {
        CHORUS_ASSIGN(const Rows rows, forward(std::span(steps).subspan(first, at_a_time)));
        all.insert(all.end(), rows.begin(), rows.end());
      }
    }
    return all;
  }

 private:
  Result<Rows> forward(std::span<const models::SequenceStep> steps) {
    CHORUS_ASSIGN(const models::Logits logits, model_.forward(steps, models::OutputRows::last));
    CHORUS_CHECK(logits.rows == steps.size());
    Rows rows(static_cast<size_t>(logits.rows) * vocabulary_);
    CHORUS_TRY(model_.backend().read(*logits.buffer, 0, std::as_writable_bytes(std::span(rows))));
    return rows;
  }

  models::LanguageModel& model_;
  uint32_t vocabulary_;
};

Result<Outcome> run_under(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint, const Setting& setting) {
  experts::ExpertOptions options;
  CHORUS_ASSIGN(const auto store, experts::open_expert_store(checkpoint, DType::f32, false));
  options.expert_ram_bytes = options.expert_vram_bytes = setting.experts * store->record_bytes();
  options.prefetch = setting.prefetch;
  options.usage_file = std::filesystem::path();
  CHORUS_ASSIGN(const auto system, experts::open_experts(backend, checkpoint, DType::f32, options));
  CHORUS_ASSIGN(const auto model, models::LanguageModel::load(backend, checkpoint.blueprint, *checkpoint.weights, system->executor(), {}));
  Run run(*model);
  Outcome outcome;
  for (const uint32_t piece : kPieces) {
    CHORUS_ASSIGN(outcome.by_pieces[piece], run.in_pieces(piece));
  }
  CHORUS_ASSIGN(outcome.alone, run.sequences(false));
  CHORUS_ASSIGN(outcome.together, run.sequences(true));
  outcome.numbers = system->statistics();
  return outcome;
}

void expect_budget_was_tight(const experts::ExpertStatistics& numbers, const Setting& setting, uint64_t layers) {
  EXPECT_FALSE(numbers.resident) << setting.text();
  EXPECT_EQ(numbers.host_slots, setting.experts);
  EXPECT_EQ(numbers.device_slots, numbers.in_place ? 0 : setting.experts);
  EXPECT_GT(numbers.cache.misses, numbers.experts) << setting.text();
  EXPECT_GT(numbers.cache.evictions, 0u) << setting.text();
  EXPECT_EQ(numbers.device.evictions > 0, !numbers.in_place) << setting.text();
  EXPECT_TRUE(setting.prefetch || numbers.cache.prefetches == 0) << setting.text();
  EXPECT_TRUE(!setting.prefetch || setting.experts <= layers || numbers.cache.prefetches_used > 0) << setting.text();
}

uint32_t mixer_width(const models::LayerSpec& layer) {
  if (const auto* attention = std::get_if<models::AttentionSpec>(&layer.mixer)) return attention->query_heads * attention->head_dim;
  if (const auto* latent = std::get_if<models::LatentAttentionSpec>(&layer.mixer)) return latent->heads * latent->value_dim;
  const auto& delta = std::get<models::DeltaSpec>(layer.mixer).shape;
  return delta.value_heads * delta.value_dim;
}

}  // namespace

// Two orders of a sum of K products differ by roundings of random sign: about u sqrt(2 K) of the norm of its terms, u = 2^-24. S sums
// follow one another from a token to its logits, and their differences add as random ones do: u sqrt(2 K S). Four times that.
double split_bound(const models::Blueprint& blueprint) {
  constexpr double kUnit = 0x1p-24;
  constexpr double kSumsOfLayer = 6;  // into the mixer, over tokens, out of it; into the feed-forward, out of it, over routes
  uint32_t longest = blueprint.hidden;
  for (const models::LayerSpec& layer : blueprint.layers) {
    longest = std::max(longest, mixer_width(layer));
    if (const auto* moe = std::get_if<models::MoeSpec>(&layer.feed_forward)) longest = std::max(longest, moe->inner);
  }
  return 4 * kUnit * std::sqrt(2.0 * longest * (kSumsOfLayer * static_cast<double>(blueprint.layers.size()) + 1));
}

void check_budgets(compute::Backend& backend, std::string_view fixture) {
  const auto checkpoint = models::open_language_checkpoint(std::filesystem::path(CHORUS_TEST_DATA) / fixture);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  const auto expected = run_under(backend, *checkpoint, {});
  ASSERT_TRUE(expected.ok()) << expected.error().to_line();
  EXPECT_TRUE(expected->numbers.resident);
  ASSERT_FALSE(expected->alone.empty());
  EXPECT_TRUE(same_bits(expected->alone, expected->together)) << fixture << ": company changes bits";
  const Rows& whole = expected->by_pieces.at(kPromptTokens);
  for (const auto& [piece, rows] : expected->by_pieces) {
    EXPECT_LE(relative_difference(rows, whole), split_bound(checkpoint->blueprint)) << fixture << ", pieces of " << piece;
  }
  const uint64_t layers = checkpoint->blueprint.layers.size();
  for (const uint64_t experts : {layers, expected->numbers.experts / 2}) {
    for (const bool prefetch : {false, true}) {
      const Setting setting{experts, prefetch};
      const auto found = run_under(backend, *checkpoint, setting);
      ASSERT_TRUE(found.ok()) << setting.text() << ": " << found.error().to_line();
      for (const auto& [piece, rows] : found->by_pieces) {
        EXPECT_TRUE(same_bits(rows, expected->by_pieces.at(piece))) << fixture << ", " << setting.text() << ", pieces of " << piece;
      }
      EXPECT_TRUE(same_bits(found->alone, expected->alone)) << fixture << ", " << setting.text() << ", alone";
      EXPECT_TRUE(same_bits(found->together, expected->alone)) << fixture << ", " << setting.text() << ", together";
      expect_budget_was_tight(found->numbers, setting, layers);
    }
  }
}

}  // namespace chorus::budget_suite
