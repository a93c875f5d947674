// Decision models against *.golden.jsonl: token ids, positions, logits, probabilities, rounded answers, counts.
#include <algorithm>
#include <cmath>

#include "base/limits.h"
#include "decisions/answers.h"
#include "decisions/pack.h"
#include "decisions/request.h"
#include "engine/decision_engine.h"
#include "formats/json.h"
#include "formats/tokenizer.h"
#include "verify/judge.h"
#include "verify/reference_rows.h"
#include "verify/verify.h"

namespace chorus::verify {

namespace {

using formats::JsonKind;
using formats::JsonValue;

constexpr double kLastDecimal = 1e-4;  // answers are rounded to four decimals

void expect_equal(Line& line, uint64_t found, uint64_t expected, const std::string& what) {
  if (found == expected) return;
  ++line.token_mismatches;
  judge(line, false, what + ": expected " + std::to_string(expected) + ", found " + std::to_string(found));
}

Result<std::vector<double>> numbers(const JsonValue& parent, std::string_view key) {
  CHORUS_ASSIGN(const JsonValue* list, parent.member(key, "reference"));
  CHORUS_ASSIGN(const auto items, list->as_array(key));
  std::vector<double> values;
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const double value, item.as_double(key));
    values.push_back(value);
  }
  return values;
}

Result<std::vector<uint64_t>> counts(const JsonValue& parent, std::string_view key) {
  CHORUS_ASSIGN(const JsonValue* list, parent.member(key, "reference"));
  CHORUS_ASSIGN(const auto items, list->as_array(key));
  std::vector<uint64_t> values;
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const uint64_t value, item.as_uint64(key));
    values.push_back(value);
  }
  return values;
}

Result<uint64_t> count(const JsonValue& parent, std::string_view key) {
  CHORUS_ASSIGN(const JsonValue* value, parent.member(key, "reference"));
  return value->as_uint64(key);
}

// Token ids and read-out positions of one question against ours.
Status compare_row(const JsonValue& row, const decisions::PackedDecision& packed, size_t index, const std::string& id, Line& line) {
  const decisions::PackedBranch& branch = packed.branches[index];
  std::vector<uint32_t> tokens = packed.state.tokens;
  const size_t state_tokens = tokens.size();
  tokens.insert(tokens.end(), branch.tokens.begin(), branch.tokens.end());
  CHORUS_ASSIGN(const std::vector<uint64_t> expected, counts(row, "token_ids"));
  expect_equal(line, tokens.size(), expected.size(), id + ": tokens of the row");
  for (size_t i = 0; i < std::min(tokens.size(), expected.size()); ++i) {
    expect_equal(line, tokens[i], expected[i], id + ": token " + std::to_string(i));
  }
  CHORUS_ASSIGN(const uint64_t state_expected, count(row, "state_tokens"));
  expect_equal(line, state_tokens, state_expected, id + ": state tokens");
  CHORUS_ASSIGN(const std::vector<uint64_t> ends, counts(row, "option_ends"));
  expect_equal(line, branch.option_ends.size(), ends.size(), id + ": options");
  for (size_t i = 0; i < std::min(branch.option_ends.size(), ends.size()); ++i) {
    expect_equal(line, branch.option_ends[i] + state_tokens, ends[i], id + ": option end " + std::to_string(i));
  }
  return {};
}

size_t argmax(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

Status compare_scores(const JsonValue& row, const engine::BranchScores& scores, const std::string& id, const Tolerances& limits,
                      Line& line) {
  CHORUS_ASSIGN(const std::vector<double> logits, numbers(row, "logits"));
  CHORUS_ASSIGN(const std::vector<double> probabilities, numbers(row, "probabilities"));
  if (logits.size() != scores.logits.size() || probabilities.size() != logits.size() || logits.empty()) {
    return make_error(ErrorCode::invalid_input, id + ": the reference has " + std::to_string(logits.size()) + " logits and " +
                                                    std::to_string(probabilities.size()) + " probabilities for " +
                                                    std::to_string(scores.logits.size()) + " options");
  }
  std::vector<double> found;
  for (size_t i = 0; i < logits.size(); ++i) {
    take_error(line.logit_error, scores.logits[i], logits[i]);
    take_error(line.probability_error, scores.probabilities[i], probabilities[i]);
    found.push_back(scores.probabilities[i]);
  }
  const size_t best = argmax(probabilities);
  judge(line, argmax(found) == best || probabilities[best] - probabilities[argmax(found)] <= limits.argmax_gap,
        id + ": the best option differs");
  return {};
}

// Our answer and the reference's, both rounded. Numbers may differ by one unit of the last decimal where rounding could go either way;
// that is counted, and anything else is a failure.
void compare_answer(const JsonValue& found, const JsonValue& expected, const std::string& where, Line& line) {
  if (found.is_number() && expected.is_number()) {
    const Result<double> ours = found.as_double(where), theirs = expected.as_double(where);
    const double difference = ours && theirs ? std::abs(*ours - *theirs) : HUGE_VAL;
    if (difference > 0) ++line.rounding_edges;
    judge(line, difference <= kLastDecimal * 1.000001,
          where + ": expected " + formats::json_dumps(expected) + ", found " + formats::json_dumps(found));
    return;
  }
  if (found.is_object() && expected.is_object()) {
    const auto ours = found.members();
    const auto theirs = expected.members();
    judge(line, ours.size() == theirs.size(),
          where + ": expected " + std::to_string(theirs.size()) + " fields, found " + std::to_string(ours.size()));
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      judge(line, ours[i].key == theirs[i].key, where + ": expected field " + theirs[i].key + ", found " + ours[i].key);
      compare_answer(ours[i].value, theirs[i].value, where + "." + theirs[i].key, line);
    }
    return;
  }
  judge(line, formats::json_dumps(found) == formats::json_dumps(expected),
        where + ": expected " + formats::json_dumps(expected) + ", found " + formats::json_dumps(found));
}

struct Session {
  const engine::DecisionEngine& engine;
  const formats::Tokenizer& tokenizer;
  Tolerances limits;
};

Status compare_answers(const Session& session, const JsonValue& reference, const decisions::DecisionRequest& request,
                       const std::vector<engine::BranchScores>& scores, Line& line) {
  std::vector<decisions::Answer> answers;
  for (size_t i = 0; i < scores.size(); ++i) {
    CHORUS_ASSIGN(decisions::Answer answer, decisions::make_answer(request.questions[i], scores[i].probabilities));
    answers.push_back(std::move(answer));
  }
  const JsonValue body = decisions::answers_json(request.questions, answers);
  CHORUS_ASSIGN(const JsonValue* expected, reference.member("answers", "reference"));
  compare_answer(body, *expected, "answers", line);
  CHORUS_ASSIGN(const uint64_t output_expected, count(reference, "output_tokens"));
  CHORUS_ASSIGN(const uint64_t output_found, decisions::count_output_tokens(body, session.tokenizer));
  if (line.rounding_edges == 0) expect_equal(line, output_found, output_expected, "output tokens");
  return {};
}

Result<Line> verify_request(const Session& session, const JsonValue& reference, const std::string& name) {
  Line line;
  line.name = name;
  CHORUS_ASSIGN(const JsonValue* body, reference.member("request", "reference"));
  CHORUS_ASSIGN(const decisions::DecisionRequest request, decisions::request_from_json(*body));
  CHORUS_ASSIGN(decisions::PackedDecision packed, decisions::pack(request, session.tokenizer));
  CHORUS_ASSIGN(const uint64_t input_expected, count(reference, "input_tokens"));
  expect_equal(line, packed.input_tokens, input_expected, "input tokens");
  CHORUS_ASSIGN(const JsonValue* rows, reference.member("rows", "reference"));

  std::vector<engine::BranchQuery> queries;
  for (const decisions::PackedBranch& branch : packed.branches) queries.push_back({branch.tokens, branch.option_ends, branch.decide});
  CHORUS_ASSIGN(const engine::Prefix prefix, session.engine.prefill(packed.state.tokens));
  CHORUS_ASSIGN(const std::vector<engine::BranchScores> scores, session.engine.evaluate(prefix, queries));
  for (size_t i = 0; i < request.questions.size(); ++i) {
    const std::string& id = request.questions[i].id;
    CHORUS_ASSIGN(const JsonValue* row, rows->member(id, "reference rows"));
    CHORUS_TRY(compare_row(*row, packed, i, id, line));
    CHORUS_TRY(compare_scores(*row, scores[i], id, session.limits, line));
  }
  judge(line, line.logit_error <= session.limits.logit, "logit error over " + std::to_string(session.limits.logit));
  judge(line, line.probability_error <= session.limits.probability, "probability error over " + std::to_string(session.limits.probability));
  if (session.limits.answers) CHORUS_TRY(compare_answers(session, reference, request, scores, line));
  return line;
}

}  // namespace

Result<Report> verify_decisions(compute::Backend& backend, const formats::Checkpoint& checkpoint, const std::filesystem::path& golden,
                                DType dtype, const OnLine& on_line) {
  CHORUS_ASSIGN(const std::vector<ReferenceRow> rows, read_reference_rows(golden, "request"));
  CHORUS_ASSIGN(const std::string tokenizer_json, checkpoint.tokenizer_json());
  CHORUS_ASSIGN(const formats::Tokenizer tokenizer, formats::Tokenizer::parse(tokenizer_json));
  engine::EngineOptions options;
  options.dtype = dtype;
  CHORUS_ASSIGN(const auto engine, engine::DecisionEngine::load(backend, checkpoint, options));
  const Session session{*engine, tokenizer, tolerances_for(dtype)};
  Report report;
  report.kind = "decision";
  for (const ReferenceRow& row : rows) {
    const std::string name = "request " + std::to_string(row.line);
    auto line = verify_request(session, row.value, name);
    if (!line) return std::move(line).error().with_context("while verifying " + name + " of " + golden.string());
    report.add(std::move(line).value(), on_line);
  }
  return report;
}

}  // namespace chorus::verify
