// Language models against *.golden.jsonl with prompts and greedy continuations: token ids of the prompt, every generated token, its text,
// and the logits of the first step where the reference has them.
#include <algorithm>

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/json.h"
#include "formats/tokenizer.h"
#include "verify/judge.h"
#include "verify/language_runner.h"
#include "verify/reference_rows.h"
#include "verify/verify.h"

namespace chorus::verify {

namespace {

using formats::JsonValue;

struct Session {
  LanguageRunner& runner;
  const formats::Tokenizer& tokenizer;
  Tolerances limits;
};

Result<std::vector<uint32_t>> token_ids(const JsonValue& reference, std::string_view key, uint32_t vocabulary) {
  CHORUS_ASSIGN(const JsonValue* list, reference.member(key, "reference"));
  CHORUS_ASSIGN(const auto items, list->as_array(key));
  std::vector<uint32_t> ids;
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const uint64_t id, item.as_uint64(key));
    if (id >= vocabulary) {
      return make_error(ErrorCode::invalid_input, std::string(key) + ": token id " + std::to_string(id) + " is outside the vocabulary of " +
                                                      std::to_string(vocabulary));
    }
    ids.push_back(static_cast<uint32_t>(id));
  }
  if (ids.empty()) return make_error(ErrorCode::invalid_input, std::string(key) + ": expected token ids, found none");
  return ids;
}

Result<std::string_view> text(const JsonValue& reference, std::string_view key) {
  CHORUS_ASSIGN(const JsonValue* value, reference.member(key, "reference"));
  return value->as_string(key);
}

Status compare_text(const Session& session, const JsonValue& reference, const std::vector<uint32_t>& prompt,
                    const std::vector<uint32_t>& greedy, Line& line) {
  CHORUS_ASSIGN(const std::string_view prompt_text, text(reference, "prompt"));
  CHORUS_ASSIGN(const std::vector<uint32_t> encoded, session.tokenizer.encode(prompt_text));
  judge(line, encoded == prompt, "the prompt's token ids differ from the reference's");
  CHORUS_ASSIGN(const std::string_view greedy_text, text(reference, "greedy_text"));
  CHORUS_ASSIGN(const std::string decoded, session.tokenizer.decode(greedy));
  judge(line, decoded == greedy_text,
        "the text of the reference's tokens is " + quote_text(decoded) + ", expected " + quote_text(greedy_text));
  return {};
}

Status compare_first_logits(const JsonValue& reference, std::span<const float> logits, const Tolerances& limits, Line& line) {
  const JsonValue* list = reference.find("first_logits");
  if (!list || list->is_null()) return {};
  CHORUS_ASSIGN(const auto items, list->as_array("first_logits"));
  if (items.size() != logits.size()) {
    return make_error(ErrorCode::invalid_input,
                      "first_logits: expected " + std::to_string(logits.size()) + " numbers, found " + std::to_string(items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    CHORUS_ASSIGN(const double expected, items[i].as_double("first_logits"));
    take_error(line.logit_error, logits[i], expected);
  }
  judge(line, line.logit_error <= limits.logit, "logit error over " + std::to_string(limits.logit));
  return {};
}

Result<Line> verify_prompt(const Session& session, const JsonValue& reference, const std::string& name) {
  Line line;
  line.name = name;
  CHORUS_ASSIGN(const std::vector<uint32_t> prompt, token_ids(reference, "prompt_ids", session.runner.vocabulary()));
  CHORUS_ASSIGN(const std::vector<uint32_t> greedy, token_ids(reference, "greedy_ids", session.runner.vocabulary()));
  CHORUS_ASSIGN(const JsonValue* margin_value, reference.member("min_margin", "reference"));
  CHORUS_ASSIGN(const double margin, margin_value->as_double("min_margin"));
  CHORUS_TRY(compare_text(session, reference, prompt, greedy, line));
  const auto capacity = static_cast<uint32_t>(prompt.size() + greedy.size());
  CHORUS_ASSIGN(std::vector<float> logits, session.runner.start(prompt, 1, capacity));
  CHORUS_TRY(compare_first_logits(reference, logits, session.limits, line));
  for (size_t step = 0; step < greedy.size(); ++step) {
    const auto token = static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (token != greedy[step]) {
      ++line.token_mismatches;
      const std::string what = "step " + std::to_string(step) + ": expected token " + std::to_string(greedy[step]) + ", found " +
                               std::to_string(token) + " (smallest margin " + std::to_string(margin) + ")";
      if (margin < session.limits.margin_tie) line.detail = what + ", a tie of the reference";
      judge(line, margin < session.limits.margin_tie, what);
      break;
    }
    if (step + 1 == greedy.size()) break;
    CHORUS_ASSIGN(logits, session.runner.next(token));
  }
  return line;
}

}  // namespace

Result<Report> verify_generation(LanguageRunner& runner, std::string_view tokenizer_json, const std::filesystem::path& golden, DType dtype,
                                 const OnLine& on_line) {
  CHORUS_ASSIGN(const std::vector<ReferenceRow> rows, read_reference_rows(golden, "prompt"));
  CHORUS_ASSIGN(const formats::Tokenizer tokenizer, formats::Tokenizer::parse(tokenizer_json));
  const Session session{runner, tokenizer, tolerances_for(dtype)};
  Report report;
  report.kind = "language";
  for (const ReferenceRow& row : rows) {
    const std::string name = "prompt " + std::to_string(row.line);
    auto line = verify_prompt(session, row.value, name);
    if (!line) return std::move(line).error().with_context("while verifying " + name + " of " + golden.string());
    report.add(std::move(line).value(), on_line);
  }
  return report;
}

}  // namespace chorus::verify
