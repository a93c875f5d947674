// Request JSON: whatever is accepted keeps the limits, writes no delimiter of its own, and gets an answer that is JSON; JSON that was read
// is written and read again alike; what is refused is refused in one line. The same bytes are also tried as a question of the command line.
#include <vector>

#include "base/limits.h"
#include "decisions/answers.h"
#include "decisions/render.h"
#include "decisions/request.h"
#include "formats/json.h"
#include "fuzz_tools.h"

namespace {

using namespace chorus;

// Uniform probabilities for every question.
formats::JsonValue answer_all(const decisions::DecisionRequest& request) {
  std::vector<decisions::Answer> answers;
  for (const decisions::Question& question : request.questions) {
    const std::vector<float> uniform(question.options.size(), 1.0f / static_cast<float>(question.options.size()));
    auto answer = decisions::make_answer(question, uniform);
    fuzz::require(answer.ok(), "probabilities give an answer");
    answers.push_back(*answer);
  }
  return decisions::answers_json(request.questions, answers);
}

void require_one_line(const Error& error) { fuzz::require(error.to_line().find('\n') == std::string::npos, "an error is one line"); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  auto json = formats::parse_json(text);
  if (json) {
    const std::string written = formats::json_dumps(*json);
    auto again = formats::parse_json(written);
    fuzz::require(again.ok(), "own JSON is read");
    fuzz::require(formats::json_dumps(*again) == written, "JSON comes back unchanged");
    const formats::JsonValue annotated = decisions::with_date_facts(*json);
    fuzz::require(formats::json_dumps(decisions::with_date_facts(annotated)) == formats::json_dumps(annotated),
                  "annotating twice changes nothing");
    decisions::render(annotated);
  }
  if (auto ask = decisions::ask_to_json(text)) (void)decisions::question_from_json(ask->first, ask->second);
  auto request = decisions::parse_request(text);
  fuzz::require(json.ok() || !request.ok(), "a request is JSON");
  if (!request) {
    require_one_line(request.error());
    return 0;
  }
  const std::string answers = formats::json_dumps(answer_all(*request));
  auto answers_again = formats::parse_json(answers);
  fuzz::require(answers_again.ok() && formats::json_dumps(*answers_again) == answers, "answers come back unchanged");
  fuzz::require(!request->questions.empty() && request->questions.size() <= limits::kQuestionsMax, "the number of questions is in range");
  for (const decisions::Question& question : request->questions) {
    fuzz::require(!question.options.empty() && question.options.size() <= limits::kOptionsMax, "the number of options is in range");
    const std::string escaped = decisions::escape_markers(question.instructions);
    fuzz::require(escaped.find("<|fim_suffix|>") == std::string::npos && escaped.find("<|box_end|>") == std::string::npos,
                  "no forged delimiter");
    fuzz::require(decisions::escape_markers(escaped) == escaped, "escaping twice changes nothing");
  }
  return 0;
}
