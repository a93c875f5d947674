#include "model/language_suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "experts/expert_reader.h"
#include "experts/resident_experts.h"
#include "model/suite_tools.h"
#include "models/language_checkpoint.h"
#include "models/language_model.h"
#include "verify/language_runner.h"
#include "verify/verify.h"

namespace chorus::language_suite {

namespace {

using suite_tools::must;
using suite_tools::relative_difference;

const std::filesystem::path kData = CHORUS_TEST_DATA;
const std::filesystem::path kModels = CHORUS_MODELS;
constexpr std::array<std::string_view, 12> kFixtures = {"deepseek_v3", "deepseek_v32", "glm4_moe",  "glm_moe_dsa",
                                                        "gpt_oss",     "llama",        "mixtral",   "olmoe",
                                                        "qwen3",       "qwen3_5_text", "qwen3_moe", "qwen3_5_moe_text"};
constexpr uint32_t kVocabulary = 512;  // of every fixture

std::vector<uint32_t> some_tokens(uint32_t count, uint32_t seed) { return suite_tools::some_tokens(count, kVocabulary, seed); }

struct Loaded {
  models::LanguageCheckpoint checkpoint;
  std::unique_ptr<experts::ResidentExperts> experts;
  std::unique_ptr<models::LanguageModel> model;
};

Loaded load(compute::Backend& backend, std::string_view fixture, uint32_t rows_max = 2048) {
  Loaded loaded;
  loaded.checkpoint = must(models::open_language_checkpoint(kData / fixture));
  const auto reader = must(experts::ExpertReader::open(loaded.checkpoint.store, loaded.checkpoint.blueprint, DType::f32));
  const auto source = [&](uint32_t layer, uint32_t expert, std::span<std::byte> record) { return reader.read(layer, expert, record); };
  loaded.experts = must(experts::ResidentExperts::load(backend, loaded.checkpoint.blueprint, DType::f32, source));
  models::LanguageModelOptions options;
  options.rows_max = rows_max;
  loaded.model =
      must(models::LanguageModel::load(backend, loaded.checkpoint.blueprint, *loaded.checkpoint.weights, loaded.experts.get(), options));
  return loaded;
}

std::vector<float> values_of(compute::Backend& backend, const models::Logits& logits) {
  std::vector<float> values(static_cast<size_t>(logits.rows) * kVocabulary);
  const Status read = backend.read(*logits.buffer, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(read.ok());
  return values;
}

std::vector<float> step(models::LanguageModel& model, models::Sequence& sequence, std::span<const uint32_t> tokens,
                        uint32_t following = 0) {
  const models::SequenceStep one{&sequence, tokens, following};
  return values_of(model.backend(), must(model.forward(std::span(&one, 1), models::OutputRows::last)));
}

void expect_pass(const verify::Report& report, size_t lines, std::string_view what) {
  EXPECT_EQ(report.lines.size(), lines) << what;
  for (const verify::Line& line : report.lines)
    EXPECT_TRUE(line.pass) << what << ", " << line.name << ": " << line.detail << " (logits " << line.logit_error << ")";
}

}  // namespace

std::span<const std::string_view> fixtures() { return kFixtures; }

void check_against_reference(compute::Backend& backend, std::string_view fixture) {
  const auto checkpoint = must(models::open_language_checkpoint(kData / fixture));
  expect_pass(must(verify::verify_language_model(backend, checkpoint, kData / fixture / "golden.safetensors", DType::f32)), 3, fixture);
}

void check_generated_texts(compute::Backend& backend) {
  const auto checkpoint = must(models::open_language_checkpoint(kModels / "moe-mini"));
  expect_pass(must(verify::verify_language_model(backend, checkpoint, kData / "moe-mini.golden.jsonl", DType::f32)), 18, "moe-mini");
}

void check_splits_and_company(compute::Backend& backend, std::string_view fixture) {
  const Loaded loaded = load(backend, fixture, 64);  // the long prompt takes several passes
  models::LanguageModel& model = *loaded.model;
  const std::vector<uint32_t> prompt = some_tokens(100, 5);
  auto whole = must(model.new_sequence(110));
  const std::vector<float> expected = step(model, *whole, prompt);
  for (const uint32_t piece : {1u, 7u, 64u}) {
    auto sequence = must(model.new_sequence(100));
    std::vector<float> found;
    for (uint32_t done = 0; done < 100; done += piece) {
      const uint32_t count = std::min(piece, 100 - done);
      found = step(model, *sequence, std::span(prompt).subspan(done, count), 100 - done - count);
    }
    EXPECT_EQ(sequence->length(), 100u);
    EXPECT_LE(relative_difference(found, expected), 2e-5) << fixture << ", pieces of " << piece;
  }
  // Eight sequences of different lengths, continued together and alone.
  std::vector<std::unique_ptr<models::Sequence>> alone, together;
  std::vector<std::vector<uint32_t>> prompts;
  for (uint32_t i = 0; i < 8; ++i) {
    prompts.push_back(some_tokens(3 + 9 * i, 100 + i));
    alone.push_back(must(model.new_sequence(80)));
    step(model, *alone.back(), prompts.back());
    together.push_back(must(model.clone(*alone.back(), 90)));
  }
  for (uint32_t round = 0; round < 3; ++round) {
    const std::vector<uint32_t> tokens = some_tokens(8, 1000 + round);
    std::vector<models::SequenceStep> steps;
    for (size_t i = 0; i < 8; ++i) steps.push_back({together[i].get(), std::span(tokens).subspan(i, 1)});
    const std::vector<float> found = values_of(backend, must(model.forward(steps, models::OutputRows::last)));
    for (size_t i = 0; i < 8; ++i) {
      const std::vector<float> row = step(model, *alone[i], std::span(tokens).subspan(i, 1));
      const std::vector<float> shared(found.begin() + static_cast<ptrdiff_t>(i * kVocabulary),
                                      found.begin() + static_cast<ptrdiff_t>((i + 1) * kVocabulary));
      EXPECT_EQ(row, shared) << fixture << ", sequence " << i << ", round " << round;
    }
  }
}

void check_continued_choices(compute::Backend& backend, std::string_view fixture, uint32_t steps) {
  const Loaded loaded = load(backend, fixture);
  models::LanguageModel& model = *loaded.model;
  const auto* latent = std::get_if<models::LatentAttentionSpec>(&model.blueprint().layers[0].mixer);
  ASSERT_TRUE(latent && latent->indexer);
  std::vector<uint32_t> text = some_tokens(latent->indexer->top_k + 21, 31);  // more keys than are taken: rows choose
  const auto length = static_cast<uint32_t>(text.size()) + steps;
  auto continued = must(model.new_sequence(length));
  std::vector<float> found = step(model, *continued, text, steps);
  for (uint32_t following = steps; following-- > 0;) {
    text.push_back(static_cast<uint32_t>(std::max_element(found.begin(), found.end()) - found.begin()));
    found = step(model, *continued, std::span(text).last(1), following);
    auto anew = must(model.new_sequence(length));
    const std::vector<float> expected = step(model, *anew, text, following);
    EXPECT_LE(relative_difference(found, expected), 2e-5) << fixture << ", " << text.size() << " tokens";
  }
}

void check_hidden_states_in_pieces(compute::Backend& backend, std::string_view fixture) {
  const std::filesystem::path golden = kData / fixture / "golden.safetensors";
  const Loaded loaded = load(backend, fixture, 5);
  ASSERT_EQ(loaded.model->pass_rows_max(), 5u);
  const auto store = must(formats::TensorStore::open(golden));
  ASSERT_GT(must(store.require("prompt0.hidden.0"))->shape[0], 5u);
  const verify::Report report =
      must(verify::verify_logits(*verify::make_runner(*loaded.model), golden, verify::tolerances_for(DType::f32)));
  expect_pass(report, 3, fixture);
  EXPECT_GT(report.lines[0].hidden_error, 0) << fixture << ": hidden states were not compared";
}

void check_clones(compute::Backend& backend, std::string_view fixture) {
  const Loaded loaded = load(backend, fixture);
  models::LanguageModel& model = *loaded.model;
  auto original = must(model.new_sequence(60));
  step(model, *original, some_tokens(40, 1));
  auto snapshot = must(model.clone(*original, 40));
  const std::vector<uint32_t> one = some_tokens(5, 2), other = some_tokens(7, 3);
  const std::vector<float> first = step(model, *original, one);
  auto branch = must(model.clone(*snapshot, 60));
  const std::vector<float> branched = step(model, *branch, other);
  EXPECT_NE(first, branched) << fixture;
  auto again = must(model.clone(*snapshot, 50));
  EXPECT_EQ(step(model, *again, one), first) << fixture;
  EXPECT_EQ(snapshot->length(), 40u);
  EXPECT_EQ(again->length(), 45u);
  EXPECT_GT(model.sequence_bytes(60), 0u);
}

void check_bad_steps(compute::Backend& backend) {
  const Loaded loaded = load(backend, "qwen3"), stranger = load(backend, "llama");
  models::LanguageModel& model = *loaded.model;
  auto sequence = must(model.new_sequence(4)), foreign = must(stranger.model->new_sequence(4));
  const std::vector<uint32_t> good = {1, 2, 3}, wrong = {kVocabulary}, none, many = {1, 2, 3, 4, 5};
  const auto refuse = [&](std::vector<models::SequenceStep> steps, ErrorCode code, const char* part) {
    const auto result = model.forward(steps, models::OutputRows::last);
    ASSERT_FALSE(result.ok()) << part;
    EXPECT_EQ(result.error().code, code) << result.error().to_line();
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().to_line();
  };
  refuse({{sequence.get(), wrong}}, ErrorCode::limit_exceeded, "token id 512 is outside the vocabulary of 512");
  refuse({{sequence.get(), none}}, ErrorCode::invalid_argument, "at least one token");
  refuse({{sequence.get(), many}}, ErrorCode::limit_exceeded, "room for 4 more tokens, asked for 5");
  refuse({{sequence.get(), good}, {sequence.get(), good}}, ErrorCode::invalid_argument, "appears twice");
  refuse({{foreign.get(), good}}, ErrorCode::invalid_argument, "not a usable one of this model");
  refuse({{nullptr, good}}, ErrorCode::invalid_argument, "not a usable one of this model");
  EXPECT_EQ(model.new_sequence(model.blueprint().context + 1).error().code, ErrorCode::limit_exceeded);
  EXPECT_FALSE(model.clone(*foreign, 4).ok());
  EXPECT_EQ(sequence->length(), 0u);
  const std::vector<float> after = step(model, *sequence, good);
  auto fresh = must(model.new_sequence(3));
  EXPECT_EQ(step(model, *fresh, good), after) << "a refused step left something behind";
  EXPECT_FALSE(model.clone(*fresh, 2).ok());
}

}  // namespace chorus::language_suite
