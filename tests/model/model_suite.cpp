#include "model/model_suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "engine/decision_engine.h"
#include "formats/checkpoint.h"
#include "model/suite_tools.h"
#include "models/qwen35.h"
#include "verify/language_runner.h"
#include "verify/verify.h"

namespace chorus::model_suite {

namespace {

using suite_tools::must;
using suite_tools::relative_difference;
using suite_tools::some_tokens;

const std::filesystem::path kData = CHORUS_TEST_DATA;
const std::filesystem::path kModels = CHORUS_MODELS;

formats::Checkpoint kev_mini() {
  formats::OpenOptions open;
  open.base = kModels / "kev-mini-base";
  return must(formats::open_checkpoint(kModels / "kev-mini", open));
}

void expect_pass(const verify::Report& report, size_t lines) {
  EXPECT_EQ(report.lines.size(), lines);
  for (const verify::Line& line : report.lines) {
    EXPECT_TRUE(line.pass) << line.name << ": " << line.detail << " (logits " << line.logit_error << ", probabilities "
                           << line.probability_error << ")";
  }
}

engine::BranchQuery some_branch(uint32_t tokens, uint32_t options, uint32_t vocabulary, uint32_t seed) {
  engine::BranchQuery branch;
  branch.tokens = some_tokens(tokens, vocabulary, seed);
  branch.decide = tokens - 1;
  for (uint32_t i = 0; i < options; ++i) branch.option_ends.push_back(tokens - 1 - options + i);
  return branch;
}

// Lengths from 6 to 93 tokens and 1 to 5 options.
std::vector<engine::BranchQuery> some_branches(uint32_t count, uint32_t vocabulary) {
  std::vector<engine::BranchQuery> branches;
  for (uint32_t i = 0; i < count; ++i) branches.push_back(some_branch(6 + (i * 29) % 88, 1 + i % 5, vocabulary, 1000 + i));
  return branches;
}

double largest_difference(const engine::BranchScores& a, const engine::BranchScores& b) {
  EXPECT_EQ(a.probabilities.size(), b.probabilities.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.probabilities.size(), b.probabilities.size()); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a.probabilities[i]) - b.probabilities[i]));
  }
  return worst;
}

void expect_same_bits(const engine::BranchScores& a, const engine::BranchScores& b, const char* what) {
  EXPECT_EQ(a.logits, b.logits) << what;
  EXPECT_EQ(a.probabilities, b.probabilities) << what;
}

std::unique_ptr<engine::DecisionEngine> load_engine(compute::Backend& backend, const formats::Checkpoint& checkpoint,
                                                    uint32_t rows_max = 2048) {
  engine::EngineOptions options;
  options.rows_max = rows_max;
  return must(engine::DecisionEngine::load(backend, checkpoint, options));
}

}  // namespace

void check_fixture_against_reference(compute::Backend& backend, DType dtype) {
  const formats::Checkpoint checkpoint = must(formats::open_checkpoint(kData / "qwen3_5_text"));
  expect_pass(must(verify::verify_decision_model(backend, checkpoint, kData / "qwen3_5_text" / "golden.safetensors", dtype)), 3);
}

void check_hidden_states_in_pieces(compute::Backend& backend) {
  const std::filesystem::path golden = kData / "qwen3_5_text" / "golden.safetensors";
  const formats::Checkpoint checkpoint = must(formats::open_checkpoint(kData / "qwen3_5_text"));
  models::LoadOptions options;
  options.language_head = true;
  options.rows_max = 5;
  const auto model = must(models::Qwen35::load(backend, checkpoint.config, *checkpoint.weights, options));
  const auto store = must(formats::TensorStore::open(golden));
  ASSERT_GT(must(store.require("prompt0.hidden.0"))->shape[0], model->pass_rows_max());
  const verify::Report report = must(verify::verify_logits(*verify::make_runner(*model), golden, verify::tolerances_for(DType::f32)));
  expect_pass(report, 3);
  EXPECT_GT(report.lines[0].hidden_error, 0) << "hidden states were not compared";
}

void check_kev_mini_against_reference(compute::Backend& backend, DType dtype) {
  expect_pass(must(verify::verify_decision_model(backend, kev_mini(), kData / "kev-mini.golden.jsonl", dtype)), 48);
}

namespace {

// The weights of a checkpoint with every number of the embedding moved to one of its two neighbours among floats.
class NudgedEmbedding final : public formats::WeightSource {
 public:
  explicit NudgedEmbedding(const formats::WeightSource& inner) : inner_(inner) {}
  bool has(std::string_view name) const override { return inner_.has(name); }
  Result<std::vector<uint64_t>> shape(std::string_view name) const override { return inner_.shape(name); }
  Result<formats::FileDType> stored_type(std::string_view name) const override { return inner_.stored_type(name); }
  std::vector<std::string> names() const override { return inner_.names(); }
  Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const override {
    CHORUS_TRY(inner_.read_rows(name, first_row, row_count, out));
    if (name.find("embed_tokens") == std::string_view::npos) return {};
    for (size_t i = 0; i < out.size(); ++i) {
      const bool up = (static_cast<uint32_t>(first_row + i) * 2654435761u) >> 31 != 0;
      out[i] = std::nextafter(out[i], up ? INFINITY : -INFINITY);
    }
    return {};
  }

 private:
  const formats::WeightSource& inner_;
};

struct ReadPrompt {
  models::StateValues state;
  std::vector<float> logits;  // of the last row

  std::vector<float> all_values() const {
    std::vector<float> values;
    for (const models::StateTensor& tensor : state) values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    return values;
  }
};

ReadPrompt read_in_pieces(const models::Qwen35& model, std::span<const uint32_t> prompt, size_t piece) {
  auto state = must(model.new_state(static_cast<uint32_t>(prompt.size())));
  models::BufferPtr hidden;
  for (size_t done = 0; done < prompt.size(); done += piece) {
    const auto count = std::min(piece, prompt.size() - done);
    const auto end = static_cast<uint32_t>(count - 1);
    hidden = must(model.advance(*state, prompt.subspan(done, count), std::span(&end, 1)));
  }
  return {must(model.read_state(*state)), must(model.logits(*hidden, 1))};
}

}  // namespace

void check_prompt_splits(compute::Backend& backend) {
  const formats::Checkpoint checkpoint = must(formats::open_checkpoint(kData / "qwen3_5_text"));
  models::LoadOptions options;
  options.language_head = true;
  const auto model = must(models::Qwen35::load(backend, checkpoint.config, *checkpoint.weights, options));
  const std::vector<uint32_t> prompt = some_tokens(150, checkpoint.config.vocab_size, 7);
  const ReadPrompt whole = read_in_pieces(*model, prompt, prompt.size());
  // How far each tensor moves when the input is rounded otherwise: what no order of summing can hide.
  const NudgedEmbedding nudged_weights(*checkpoint.weights);
  const auto nudged_model = must(models::Qwen35::load(backend, checkpoint.config, nudged_weights, options));
  const ReadPrompt nudged = read_in_pieces(*nudged_model, prompt, prompt.size());
  ASSERT_EQ(nudged.state.size(), whole.state.size());
  constexpr double kMovesAllowed = 4;  // seen: 2.1
  for (const size_t piece : {1, 3, 63, 64, 65, 127}) {
    const ReadPrompt found = read_in_pieces(*model, prompt, piece);
    EXPECT_LE(relative_difference(found.all_values(), whole.all_values()), 2e-5) << "state, pieces of " << piece;
    EXPECT_LE(relative_difference(found.logits, whole.logits), 2e-5) << "logits, pieces of " << piece;
    ASSERT_EQ(found.state.size(), whole.state.size());
    for (size_t i = 0; i < whole.state.size(); ++i) {
      ASSERT_EQ(found.state[i].name, whole.state[i].name);
      const double moved = relative_difference(nudged.state[i].values, whole.state[i].values);
      const double difference = relative_difference(found.state[i].values, whole.state[i].values);
      EXPECT_LE(difference, kMovesAllowed * moved) << found.state[i].name << ", pieces of " << piece;
    }
  }
}

void check_question_batches(compute::Backend& backend, const std::set<uint32_t>& counts) {
  const formats::Checkpoint checkpoint = kev_mini();
  const auto engine = load_engine(backend, checkpoint);
  const uint32_t vocabulary = checkpoint.config.vocab_size;
  const engine::Prefix prefix = must(engine->prefill(some_tokens(77, vocabulary, 3)));
  const models::StateValues before = must(engine->model().read_state(prefix.state()));
  const std::vector<engine::BranchQuery> branches = some_branches(*counts.rbegin(), vocabulary);

  std::vector<engine::BranchScores> alone;
  for (uint32_t i = 0; i < std::min(*counts.rbegin(), 20u); ++i) {
    alone.push_back(must(engine->evaluate(prefix, std::span(branches).subspan(i, 1)))[0]);
  }
  std::map<uint32_t, std::vector<engine::BranchScores>> first_time;
  for (uint32_t count : counts) {
    const auto together = must(engine->evaluate(prefix, std::span(branches).first(count)));
    ASSERT_EQ(together.size(), count);
    for (size_t i = 0; i < std::min<size_t>(count, alone.size()); ++i) {
      EXPECT_LE(largest_difference(together[i], alone[i]), 1e-5) << "question " << i << " of " << count;
    }
    first_time[count] = together;
  }
  // Again, in the other order of calls.
  for (auto call = first_time.rbegin(); call != first_time.rend(); ++call) {
    const auto& [count, scores] = *call;
    if (count > 9 && backend.info().software) continue;  // minutes
    const auto again = must(engine->evaluate(prefix, std::span(branches).first(count)));
    ASSERT_EQ(again.size(), count);
    for (size_t i = 0; i < count; ++i) expect_same_bits(again[i], scores[i], "the same call again");
  }
  // And with the questions of a call in the other order.
  const size_t few = 9;
  std::vector<engine::BranchQuery> reversed(branches.begin(), branches.begin() + few);
  std::reverse(reversed.begin(), reversed.end());
  const auto backwards = must(engine->evaluate(prefix, reversed));
  ASSERT_EQ(backwards.size(), few);
  for (size_t i = 0; i < few; ++i) expect_same_bits(backwards[few - 1 - i], first_time.at(few)[i], "reversed order");
  EXPECT_EQ(must(engine->model().read_state(prefix.state())), before) << "evaluating changed the prefix";
}

void check_small_passes(compute::Backend& backend) {
  const formats::Checkpoint checkpoint = kev_mini();
  const uint32_t vocabulary = checkpoint.config.vocab_size;
  const std::vector<uint32_t> state = some_tokens(150, vocabulary, 5);
  std::vector<engine::BranchQuery> branches = some_branches(6, vocabulary);
  branches.push_back(some_branch(200, 4, vocabulary, 99));  // longer than a small pass
  const auto big = load_engine(backend, checkpoint);
  const auto expected = must(big->evaluate(must(big->prefill(state)), branches));
  const auto small = load_engine(backend, checkpoint, 64);
  ASSERT_EQ(small->model().pass_rows_max(), 64u);
  const engine::Prefix prefix = must(small->prefill(state));
  const models::StateValues before = must(small->model().read_state(prefix.state()));
  const auto found = must(small->evaluate(prefix, branches));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(largest_difference(found[i], expected[i]), 1e-5) << "question " << i;
  EXPECT_EQ(must(small->model().read_state(prefix.state())), before) << "a long question changed the prefix";
}

void check_two_prefixes(compute::Backend& backend) {
  const formats::Checkpoint checkpoint = kev_mini();
  const auto engine = load_engine(backend, checkpoint);
  const uint32_t vocabulary = checkpoint.config.vocab_size;
  const auto branches = some_branches(3, vocabulary);
  const engine::Prefix first = must(engine->prefill(some_tokens(40, vocabulary, 11)));
  const auto first_alone = must(engine->evaluate(first, branches));
  const engine::Prefix second = must(engine->prefill(some_tokens(130, vocabulary, 12)));
  const auto second_once = must(engine->evaluate(second, branches));
  const auto first_again = must(engine->evaluate(first, branches));
  const auto second_again = must(engine->evaluate(second, branches));
  bool differ = false;
  for (size_t i = 0; i < branches.size(); ++i) {
    expect_same_bits(first_again[i], first_alone[i], "first prefix");
    expect_same_bits(second_again[i], second_once[i], "second prefix");
    differ = differ || first_alone[i].logits != second_once[i].logits;
  }
  EXPECT_TRUE(differ) << "different states gave the same answers";
}

void check_long_state(compute::Backend& backend, uint32_t tokens) {
  formats::Checkpoint checkpoint = kev_mini();
  checkpoint.config.max_positions = tokens + 100;
  const auto engine = load_engine(backend, checkpoint);
  const uint32_t vocabulary = checkpoint.config.vocab_size;
  const engine::Prefix prefix = must(engine->prefill(some_tokens(tokens, vocabulary, 21)));
  EXPECT_EQ(prefix.tokens(), tokens);
  for (const models::StateTensor& tensor : must(engine->model().read_state(prefix.state()))) {
    for (float value : tensor.values) ASSERT_TRUE(std::isfinite(value)) << tensor.name;
  }
  for (const engine::BranchScores& scores : must(engine->evaluate(prefix, some_branches(3, vocabulary)))) {
    EXPECT_NEAR(std::accumulate(scores.probabilities.begin(), scores.probabilities.end(), 0.0), 1.0, 1e-5);
  }
}

}  // namespace chorus::model_suite
