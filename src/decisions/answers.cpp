#include "decisions/answers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace chorus::decisions {
namespace {

using formats::JsonValue;

// A softmax in f32 may end a few roundings above 1; more than this is a defect of the engine.
constexpr double kRoundingSlack = 1e-5;

double rounded(double value, int decimals) {
  char buffer[400];  // a double has up to 309 digits before the point
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals);
  double result = 0;
  std::from_chars(buffer, end.ptr, result);
  return result;
}

// Divided by their sum; uniform when all are zero.
std::vector<double> normalized(const std::vector<double>& probabilities) {
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  std::vector<double> result(probabilities.size(), 1.0 / static_cast<double>(probabilities.size()));
  if (sum > 0) std::transform(probabilities.begin(), probabilities.end(), result.begin(), [sum](double p) { return p / sum; });
  return result;
}

double choice_confidence(const std::vector<double>& probabilities) {
  if (probabilities.size() == 1) return 1;
  const double uniform = 1.0 / static_cast<double>(probabilities.size());
  const std::vector<double> shares = normalized(probabilities);
  return (*std::max_element(shares.begin(), shares.end()) - uniform) / (1 - uniform);
}

// One minus the mean distance from the mode, relative to a distance that stands for knowing nothing.
double score_confidence(const std::vector<double>& probabilities, ScoreConfidence formula) {
  const size_t levels = probabilities.size();
  if (levels == 1) return 1;
  const std::vector<double> shares = normalized(probabilities);
  const auto mode = std::max_element(shares.begin(), shares.end()) - shares.begin();
  double distance = 0;
  for (size_t level = 0; level < levels; ++level) {
    distance += shares[level] * std::fabs(static_cast<double>(level) - static_cast<double>(mode));
  }
  if (formula == ScoreConfidence::kev_before_1_0) return 1 - distance / static_cast<double>(levels - 1);
  const double middle = static_cast<double>(levels - 1) / 2;
  double spread = 0;
  for (size_t level = 0; level < levels; ++level) spread += std::fabs(static_cast<double>(level) - middle);
  return std::max(0.0, 1 - distance / (spread / static_cast<double>(levels)));
}

JsonValue rounded_json(double value) { return JsonValue::floating(round_to_4_decimals(value)); }

}  // namespace

double round_to_4_decimals(double value) { return rounded(value, 4); }

Result<Answer> make_answer(const Question& question, std::span<const float> probabilities, ScoreConfidence formula) {
  if (probabilities.empty() || probabilities.size() != question.options.size()) {
    return make_error(ErrorCode::internal, "questions." + question.id.substr(0, 64) + ": expected " +
                                               std::to_string(question.options.size()) + " probabilities, found " +
                                               std::to_string(probabilities.size()));
  }
  Answer answer;
  answer.type = question.type;
  for (const float probability : probabilities) {
    const double wide = probability;
    if (!(wide >= 0 && wide <= 1 + kRoundingSlack)) {
      return make_error(ErrorCode::internal, "questions." + question.id.substr(0, 64) + ": expected probabilities from 0 to 1, found " +
                                                 formats::python_float_text(wide));
    }
    answer.probabilities.push_back(std::min(wide, 1.0));
  }
  const std::vector<double>& p = answer.probabilities;
  answer.best = static_cast<uint32_t>(std::max_element(p.begin(), p.end()) - p.begin());
  switch (question.type) {
    case QuestionType::noul:
      if (p.size() != 2) return make_error(ErrorCode::internal, "a noul has two options, found " + std::to_string(p.size()));
      answer.value = p[1];
      break;
    case QuestionType::choice:
      answer.value = p[answer.best];
      answer.confidence = choice_confidence(p);
      break;
    case QuestionType::score:
      for (size_t level = 0; level < p.size(); ++level) answer.value += static_cast<double>(level) * p[level];
      answer.confidence = score_confidence(p, formula);
      break;
  }
  return answer;
}

JsonValue answer_json(const Question& question, const Answer& answer) {
  JsonValue body = JsonValue::object();
  body.append("type", JsonValue::string(question_type_name(answer.type)));
  if (answer.type == QuestionType::noul) {
    body.append("noul", rounded_json(answer.value));
    return body;
  }
  const bool score = answer.type == QuestionType::score;
  JsonValue probabilities = JsonValue::object(), legend = JsonValue::object();
  for (size_t i = 0; i < answer.probabilities.size() && i < question.options.size(); ++i) {
    const std::string key = score ? std::to_string(i) : question.options[i].name;
    probabilities.append(key, rounded_json(answer.probabilities[i]));
    if (score) legend.append(key, JsonValue::string(question.options[i].name));
  }
  if (score) {
    body.append("score", rounded_json(answer.value));
    body.append("legend", std::move(legend));
    body.append("probabilities", std::move(probabilities));
    body.append("confidence", rounded_json(answer.confidence));
  } else {
    body.append("choice", JsonValue::string(answer.best < question.options.size() ? question.options[answer.best].name : std::string()));
    body.append("confidence", rounded_json(answer.confidence));
    body.append("probabilities", std::move(probabilities));
  }
  return body;
}

JsonValue answers_json(const std::vector<Question>& questions, const std::vector<Answer>& answers) {
  JsonValue body = JsonValue::object();
  for (size_t i = 0; i < questions.size() && i < answers.size(); ++i) body.append(questions[i].id, answer_json(questions[i], answers[i]));
  return body;
}

Result<uint64_t> count_output_tokens(const JsonValue& answers, const formats::Tokenizer& tokenizer) {
  CHORUS_ASSIGN(const std::vector<uint32_t> ids, tokenizer.encode(formats::json_dumps(answers)));
  return static_cast<uint64_t>(ids.size());
}

JsonValue response_json(const ResponseFacts& facts, JsonValue answers) {
  const auto count = [](uint64_t value) { return JsonValue::integer_digits(std::to_string(value)); };
  JsonValue usage = JsonValue::object();
  usage.append("input_tokens", count(facts.input_tokens));
  usage.append("output_tokens", count(facts.output_tokens));
  if (facts.truncation) {
    usage.append("state_tokens", count(facts.truncation->state_tokens));
    usage.append("state_tokens_used", count(facts.truncation->state_tokens_used));
  }
  JsonValue body = JsonValue::object();
  body.append("model", JsonValue::string(facts.model));
  body.append("answers", std::move(answers));
  body.append("usage", std::move(usage));
  body.append("latency_ms", JsonValue::floating(std::isfinite(facts.latency_ms) ? rounded(facts.latency_ms, 1) : 0.0));
  if (facts.truncation) body.append("truncated", JsonValue::boolean(facts.truncation->state_tokens != facts.truncation->state_tokens_used));
  return body;
}

}  // namespace chorus::decisions
