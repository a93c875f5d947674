// Probabilities to answers and to the response body (kev.md 5.2, 5.3, 5.5; systemone.md 3).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "decisions/request.h"
#include "formats/json.h"
#include "formats/tokenizer.h"

namespace chorus::decisions {

enum class ScoreConfidence : uint8_t {
  kev_1_0,         // 1 - E / D, D the mean distance from the middle
  kev_before_1_0,  // 1 - E / (levels - 1)
};

struct Answer {
  QuestionType type = QuestionType::noul;
  std::vector<double> probabilities;  // of every option, not rounded
  uint32_t best = 0;                  // first maximum before rounding
  double value = 0;                   // noul: probability of yes; score: expected level; choice: probability of the best
  double confidence = 0;              // choice and score
};

// Probabilities as the head gives them, one per option. Anything not finite or outside [0, 1] is an error: never answer from it.
Result<Answer> make_answer(const Question& question, std::span<const float> probabilities,
                           ScoreConfidence formula = ScoreConfidence::kev_1_0);

// Python's round(value, 4).
double round_to_4_decimals(double value);

// One answer as JSON, fields in the order of Kev 1.0, every number rounded to 4 decimals.
formats::JsonValue answer_json(const Question& question, const Answer& answer);
// {id: answer, ...} in request order.
formats::JsonValue answers_json(const std::vector<Question>& questions, const std::vector<Answer>& answers);

// Tokens of the answers in Python's json.dumps form.
Result<uint64_t> count_output_tokens(const formats::JsonValue& answers, const formats::Tokenizer& tokenizer);

// Only where the server may cut states: both counts include the delimiter.
struct TruncationReport {
  uint64_t state_tokens = 0;
  uint64_t state_tokens_used = 0;
};
struct ResponseFacts {
  std::string model;
  uint64_t input_tokens = 0;
  uint64_t output_tokens = 0;
  double latency_ms = 0;  // printed with one decimal
  std::optional<TruncationReport> truncation;
};
// model, answers, usage {input_tokens, output_tokens}, latency_ms; with truncation also usage.state_tokens, usage.state_tokens_used and a
// last `truncated`.
formats::JsonValue response_json(const ResponseFacts& facts, formats::JsonValue answers);

}  // namespace chorus::decisions
