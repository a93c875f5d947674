// How the next token is chosen from a row of logits.
// Greedy choices and plain sampling happen on the device; penalties, bias and log probabilities need the row on the host, where the same
// rules hold (compute/ops.h, SampleArgs). Owns: options, their checks, the host's choice. Must not know: sequences, text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "models/language_model.h"

namespace chorus::generation {

inline constexpr uint32_t kLogprobsMax = 100;

struct SamplingOptions {
  float temperature = 0;  // 0: the most probable token (of equals the lowest id)
  uint32_t top_k = 0;     // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  // of tokens of prompt and answer: positive logits are divided by it, negative ones multiplied
  float presence_penalty = 0;    // subtracted once from logits of tokens of the answer
  float frequency_penalty = 0;   // subtracted as often as the token came
  std::vector<std::pair<uint32_t, float>> logit_bias;  // added before the penalties
  uint64_t seed = 0;                                   // the draw of a step depends on seed and step alone
  bool logprobs = false;                               // of the chosen token, under the model's own distribution
  uint32_t top_logprobs = 0;                           // and of as many most probable ones
};

// Errors: invalid_argument, naming the option.
Status check_sampling(const SamplingOptions& options, uint32_t vocabulary);
// Whether a choice needs the row on the host.
bool needs_row(const SamplingOptions& options);
compute::SampleRow sample_row(const SamplingOptions& options, uint32_t step);

struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0;
};

struct TokenChoice {
  uint32_t token = 0;
  float logprob = 0;                       // with SamplingOptions::logprobs
  std::vector<TokenLogprob> top_logprobs;  // by falling probability
};

// Tokens that penalties look at.
struct TokenHistory {
  std::unordered_set<uint32_t> prompt;
  std::unordered_map<uint32_t, uint32_t> answer;  // how often
};

// `row` is changed. Errors: invalid_input when it holds a NaN or nothing finite.
Result<TokenChoice> choose_on_host(std::span<float> row, const SamplingOptions& options, uint32_t step, const TokenHistory& history);

// One row of logits and how to choose from it.
struct RowChoice {
  const SamplingOptions* options = nullptr;
  uint32_t step = 0;
  const TokenHistory* history = nullptr;
};

class TokenChooser {
 public:
  explicit TokenChooser(compute::Backend& backend) : backend_(backend) {}

  // One result per row: a NaN in one row is that row's error alone. An error of the call itself is the device's.
  Result<std::vector<Result<TokenChoice>>> choose(const models::Logits& logits, uint32_t vocabulary, std::span<const RowChoice> rows);

 private:
  Status choose_on_device(const models::Logits& logits, uint32_t vocabulary, std::span<const RowChoice> rows, std::vector<uint32_t>& greedy,
                          std::vector<uint32_t>& drawn);
  Status reserve(uint32_t rows);

  compute::Backend& backend_;
  std::shared_ptr<compute::Buffer> greedy_, drawn_, sample_rows_;
  uint32_t reserved_ = 0;
  std::vector<float> row_;
};

}  // namespace chorus::generation
