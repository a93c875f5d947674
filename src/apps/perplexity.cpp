// `chorus perplexity`: how well a language model predicts a text, in sliding windows.
#include <cmath>
#include <cstdio>

#include "apps/help.h"
#include "apps/text_command.h"
#include "base/limits.h"
#include "formats/tokenizer.h"

namespace chorus::apps {

namespace {

constexpr uint32_t kWindowDefault = 2048;
constexpr uint64_t kLogitsBytesMax = 64ull << 20;  // of logits that are read at once

struct PerplexityFlags {
  TextFlags text;
  std::string file;
  uint32_t window = 0, stride = 0;
  bool json = false;
};

struct Score {
  double negative_log = 0;  // sum over scored tokens, natural logarithm
  uint64_t scored = 0, tokens = 0, windows = 0;
  uint32_t window = 0, stride = 0;
};

// -log softmax(row)[token]; NaN when the row holds one.
double negative_log_probability(std::span<const float> row, uint32_t token) {
  double largest = row[0];
  for (const float logit : row) largest = std::isnan(logit) ? NAN : std::max(largest, static_cast<double>(logit));
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + largest - static_cast<double>(row[token]);
}

// Reads tokens[begin, end) in an empty sequence; scores those from `scored_from` on (never the first, which nothing predicts).
Status score_window(models::LanguageModel& model, std::span<const uint32_t> tokens, uint64_t begin, uint64_t end, uint64_t scored_from,
                    Score& score) {
  const uint32_t vocabulary = model.blueprint().vocabulary;
  const uint64_t piece = std::max<uint64_t>(1, kLogitsBytesMax / (uint64_t{4} * vocabulary));
  CHORUS_ASSIGN(const auto sequence, model.new_sequence(static_cast<uint32_t>(end - begin)));
  std::vector<float> rows;
  for (uint64_t at = begin; at + 1 < end;) {
    // Row i predicts token i + 1, so rows from scored_from - 1 on are needed.
    const bool needed = at + 1 >= scored_from;
    const uint64_t count = needed ? std::min(piece, end - 1 - at) : std::min(scored_from - 1, end - 1) - at;
    const models::SequenceStep step{sequence.get(), tokens.subspan(at, count)};
    CHORUS_ASSIGN(const models::Logits logits,
                  model.forward(std::span(&step, 1), needed ? models::OutputRows::all : models::OutputRows::last));
    if (needed) {
      rows.resize(count * vocabulary);
      CHORUS_TRY(model.backend().read(*logits.buffer, 0, std::as_writable_bytes(std::span(rows))));
      for (uint64_t i = 0; i < count; ++i) {
        const double loss = negative_log_probability(std::span(rows).subspan(i * vocabulary, vocabulary), tokens[at + i + 1]);
        if (std::isnan(loss)) {
          return make_error(ErrorCode::invalid_input, "the model's logits are not numbers (NaN) at token " + std::to_string(at + i));
        }
        score.negative_log += loss;
        ++score.scored;
      }
    }
    at += count;
  }
  return {};
}

Result<Score> measure(const PerplexityFlags& flags) {
  CHORUS_ASSIGN(const std::string text, read_text(flags.file, limits::kTextBytesMax));
  CHORUS_ASSIGN(const models::LanguageCheckpoint checkpoint, models::open_language_checkpoint(flags.text.model));
  if (!checkpoint.files.tokenizer_json) return make_error(ErrorCode::not_found, flags.text.model + ": expected tokenizer.json, found none");
  CHORUS_ASSIGN(const formats::Tokenizer tokenizer, formats::Tokenizer::parse(*checkpoint.files.tokenizer_json));
  auto encoded = tokenizer.encode(text);
  if (!encoded) return std::move(encoded).error().with_context("reading " + flags.file);
  std::vector<uint32_t> tokens(tokenizer.leading_tokens().begin(), tokenizer.leading_tokens().end());
  tokens.insert(tokens.end(), encoded->begin(), encoded->end());
  if (tokens.size() < 2)
    return make_error(ErrorCode::invalid_input,
                      flags.file + ": expected a text of at least two tokens, found " + std::to_string(tokens.size()));

  Score score;
  score.window = flags.window > 0 ? flags.window : std::min(kWindowDefault, checkpoint.blueprint.context);
  score.stride = flags.stride > 0 ? flags.stride : std::max(1u, score.window / 2);
  if (score.window > checkpoint.blueprint.context) {
    return make_error(ErrorCode::limit_exceeded, "--window " + std::to_string(score.window) + ": the model reads at most " +
                                                     std::to_string(checkpoint.blueprint.context) + " tokens");
  }
  if (score.stride >= score.window) {
    return make_error(ErrorCode::invalid_argument,
                      "--stride " + std::to_string(score.stride) + ": expected less than the window of " + std::to_string(score.window));
  }
  CHORUS_ASSIGN(const auto side, runtime::load_language_side(checkpoint, language_options(flags.text, false)));
  score.tokens = tokens.size();
  uint64_t scored_to = 1;
  for (uint64_t begin = 0; scored_to < tokens.size(); begin += score.stride) {
    const uint64_t end = std::min<uint64_t>(begin + score.window, tokens.size());
    CHORUS_TRY(score_window(*side->model, tokens, begin, end, scored_to, score));
    ++score.windows;
    scored_to = end;
  }
  return score;
}

}  // namespace

Command add_perplexity(CLI::App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a language model predicts a text")->group("Look into models");
  add_model_option(*command, flags->text, false);
  command->add_option("file", flags->file, "The text; -: standard input")->required();
  command->add_option("--window", flags->window, "Tokens the model sees at once (default: 2048, or its context)")
      ->check(CLI::Range(2u, 1u << 24))
      ->group(kInputGroup);
  command->add_option("--stride", flags->stride, "Tokens from one window to the next (default: half a window)")
      ->check(CLI::Range(1u, 1u << 24))
      ->group(kInputGroup);
  add_device_flags(*command, flags->text.device);
  add_json_flag(*command, flags->json);
  add_expert_flags(*command, flags->text);
  add_rare_flags(*command, flags->text.device);
  return {command, [flags]() -> int {
            auto score = measure(*flags);
            if (!score) return fail(score.error());
            const double mean = score->negative_log / static_cast<double>(score->scored);
            if (!flags->json) {
              print("perplexity %.4f (%.6f nats a token) over %llu of %llu tokens; windows of %u tokens, stride %u\n", std::exp(mean), mean,
                    static_cast<unsigned long long>(score->scored), static_cast<unsigned long long>(score->tokens), score->window,
                    score->stride);
              return kExitOk;
            }
            formats::JsonValue body = formats::JsonValue::object();
            body.set("perplexity", formats::JsonValue::floating(std::min(std::exp(mean), std::numeric_limits<double>::max())));
            body.set("nats_per_token", formats::JsonValue::floating(mean));
            body.set("scored_tokens", formats::JsonValue::integer(static_cast<int64_t>(score->scored)));
            body.set("tokens", formats::JsonValue::integer(static_cast<int64_t>(score->tokens)));
            body.set("windows", formats::JsonValue::integer(static_cast<int64_t>(score->windows)));
            body.set("window", formats::JsonValue::integer(score->window));
            body.set("stride", formats::JsonValue::integer(score->stride));
            print("%s\n", formats::json_dumps(body).c_str());
            return kExitOk;
          }};
}

}  // namespace chorus::apps
