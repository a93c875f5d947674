#include "decisions/answers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace chorus::decisions {
namespace {

Question question_of(QuestionType type, std::vector<std::string> names) {
  Question question;
  question.id = "q";
  question.type = type;
  for (std::string& name : names) question.options.push_back({name, name});
  return question;
}

std::vector<std::string> numbered(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("o" + std::to_string(i));
  return names;
}

std::string answered(const Question& question, const std::vector<float>& probabilities,
                     ScoreConfidence formula = ScoreConfidence::kev_1_0) {
  const auto answer = make_answer(question, probabilities, formula);
  return answer.ok() ? formats::json_dumps(answer_json(question, *answer)) : "error: " + answer.error().to_line();
}

double confidence(QuestionType type, const std::vector<float>& probabilities, ScoreConfidence formula = ScoreConfidence::kev_1_0) {
  const auto answer = make_answer(question_of(type, numbered(probabilities.size())), probabilities, formula);
  EXPECT_TRUE(answer.ok());
  return answer.ok() ? round_to_4_decimals(answer->confidence) : -1;
}

TEST(Answers, Noul) {
  const Question noul = question_of(QuestionType::noul, {"no", "yes"});
  EXPECT_EQ(answered(noul, {.3f, .7f}), R"({"type": "noul", "noul": 0.7})");
  EXPECT_EQ(answered(noul, {.12345678f, .87654322f}), R"({"type": "noul", "noul": 0.8765})");
  EXPECT_EQ(answered(noul, {1, 0}), R"({"type": "noul", "noul": 0.0})");
}

TEST(Answers, Choice) {
  const Question choice = question_of(QuestionType::choice, {"a", "b", "c"});
  EXPECT_EQ(answered(choice, {.8f, .15f, .05f}),
            R"({"type": "choice", "choice": "a", "confidence": 0.7, "probabilities": {"a": 0.8, "b": 0.15, "c": 0.05}})");
  EXPECT_EQ(answered(question_of(QuestionType::choice, {"only"}), {1}),
            R"({"type": "choice", "choice": "only", "confidence": 1.0, "probabilities": {"only": 1.0}})");
  // Ties go to the first; the maximum is taken before rounding.
  EXPECT_EQ(make_answer(choice, std::vector<float>{.2f, .4f, .4f})->best, 1u);
  EXPECT_EQ(make_answer(choice, std::vector<float>{.33333f, .33334f, .33333f})->best, 1u);
  EXPECT_EQ(confidence(QuestionType::choice, {1}), 1);
  EXPECT_EQ(confidence(QuestionType::choice, {.5f, .5f}), 0);
  EXPECT_EQ(confidence(QuestionType::choice, {1, 0, 0}), 1);
  EXPECT_EQ(confidence(QuestionType::choice, {.94f, .06f, 0}), .91);
  EXPECT_EQ(confidence(QuestionType::choice, {0, 0, 0}), 0);  // no mass at all counts as uniform
}

TEST(Answers, Score) {
  EXPECT_EQ(answered(question_of(QuestionType::score, {"low", "mid", "high"}), {.1f, .3f, .6f}),
            R"({"type": "score", "score": 1.5, "legend": {"0": "low", "1": "mid", "2": "high"}, )"
            R"("probabilities": {"0": 0.1, "1": 0.3, "2": 0.6}, "confidence": 0.25})");
  EXPECT_EQ(answered(question_of(QuestionType::score, {"x"}), {1}),
            R"({"type": "score", "score": 0.0, "legend": {"0": "x"}, "probabilities": {"0": 1.0}, "confidence": 1.0})");
  EXPECT_EQ(confidence(QuestionType::score, {1}), 1);
  EXPECT_EQ(confidence(QuestionType::score, {0, 1, 0}), 1);
  EXPECT_EQ(confidence(QuestionType::score, {0, .5f, .5f}), .25);
  EXPECT_EQ(confidence(QuestionType::score, {.5f, 0, .5f}), 0);
  EXPECT_EQ(confidence(QuestionType::score, {0, .03f, .97f}), .955);
  EXPECT_EQ(confidence(QuestionType::score, {0, 0, .5f, .5f, 0}), .5833);
  EXPECT_EQ(confidence(QuestionType::score, {0, .56f, .44f}), .34);
  EXPECT_EQ(confidence(QuestionType::score, {0, .56f, .44f}, ScoreConfidence::kev_before_1_0), .78);
  EXPECT_EQ(confidence(QuestionType::score, {.1f, .3f, .6f}, ScoreConfidence::kev_before_1_0), .75);
}

TEST(Answers, RoundedSumsStayNearOne) {
  std::vector<float> uniform(255, 1.0f / 255);
  std::vector<float> peaked(40, 0.001f);
  peaked[7] = 1 - 39 * 0.001f;
  for (const std::vector<float>& probabilities : {uniform, peaked}) {
    const auto answer = make_answer(question_of(QuestionType::choice, numbered(probabilities.size())), probabilities);
    ASSERT_TRUE(answer.ok());
    double sum = 0;
    for (const double p : answer->probabilities) sum += round_to_4_decimals(p);
    EXPECT_NEAR(sum, 1, 0.02);
  }
}

TEST(Answers, RoundsLikePython) {
  EXPECT_EQ(round_to_4_decimals(0.00005), 0.0001);  // the double is a little above the tie
  EXPECT_EQ(round_to_4_decimals(0.00015), 0.0001);  // a little below
  EXPECT_EQ(round_to_4_decimals(0.03125), 0.0312);  // exact tie: to even
  EXPECT_EQ(round_to_4_decimals(0.09375), 0.0938);  // exact tie: to even
  EXPECT_EQ(round_to_4_decimals(1.44005), 1.4401);
  EXPECT_EQ(round_to_4_decimals(0.99996), 1.0);
  EXPECT_EQ(round_to_4_decimals(254), 254);
}

TEST(Answers, BadProbabilitiesAreNeverAnswers) {
  const Question noul = question_of(QuestionType::noul, {"no", "yes"});
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -0.1f, 1.1f, -std::numeric_limits<float>::infinity()}) {
    const auto answer = make_answer(noul, std::vector<float>{0.5f, bad});
    ASSERT_FALSE(answer.ok()) << bad;
    EXPECT_NE(answer.error().message.find("questions.q: expected probabilities from 0 to 1"), std::string::npos);
  }
  EXPECT_EQ(answered(noul, {0, 1.0000002f}), R"({"type": "noul", "noul": 1.0})");  // f32 rounding is clamped
  EXPECT_NE(answered(noul, {1}).find("expected 2 probabilities, found 1"), std::string::npos);
  EXPECT_FALSE(make_answer(question_of(QuestionType::choice, {}), {}).ok());
}

TEST(Response, FieldOrder) {
  const Question noul = question_of(QuestionType::noul, {"no", "yes"});
  const auto answer = make_answer(noul, std::vector<float>{.25f, .75f});
  const auto answers = answers_json({noul}, {*answer});
  ResponseFacts facts{.model = "kev-latest", .input_tokens = 101, .output_tokens = 12, .latency_ms = 18.149, .truncation = std::nullopt};
  EXPECT_EQ(formats::json_dumps(response_json(facts, answers)),
            R"({"model": "kev-latest", "answers": {"q": {"type": "noul", "noul": 0.75}}, )"
            R"("usage": {"input_tokens": 101, "output_tokens": 12}, "latency_ms": 18.1})");
  facts.truncation = TruncationReport{.state_tokens = 1001, .state_tokens_used = 384};
  EXPECT_EQ(
      formats::json_dumps(response_json(facts, answers)),
      R"({"model": "kev-latest", "answers": {"q": {"type": "noul", "noul": 0.75}}, "usage": {"input_tokens": 101, "output_tokens": 12, )"
      R"("state_tokens": 1001, "state_tokens_used": 384}, "latency_ms": 18.1, "truncated": true})");
  facts.truncation = TruncationReport{.state_tokens = 384, .state_tokens_used = 384};
  EXPECT_EQ(*response_json(facts, answers).find("truncated")->boolean_if(), false);
}

}  // namespace
}  // namespace chorus::decisions
