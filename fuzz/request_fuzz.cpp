// Request JSON: whatever is accepted keeps the limits, writes no delimiter of its own, and JSON that was read is written and read again alike.
#include "base/limits.h"
#include "decisions/render.h"
#include "decisions/request.h"
#include "formats/json.h"
#include "fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  const std::string_view text = fuzz::as_text(data, size);
  auto json = formats::parse_json(text);
  if (json) {
    const std::string written = formats::json_dumps(*json);
    auto again = formats::parse_json(written);
    fuzz::require(again.ok(), "own JSON is read");
    fuzz::require(formats::json_dumps(*again) == written, "JSON comes back unchanged");
    decisions::render(decisions::with_date_facts(*json));
  }
  auto request = decisions::parse_request(text);
  fuzz::require(json.ok() || !request.ok(), "a request is JSON");
  if (!request) return 0;
  fuzz::require(!request->questions.empty() && request->questions.size() <= limits::kQuestionsMax, "the number of questions is in range");
  for (const decisions::Question& question : request->questions) {
    fuzz::require(!question.options.empty() && question.options.size() <= limits::kOptionsMax, "the number of options is in range");
    const std::string escaped = decisions::escape_markers(question.instructions);
    fuzz::require(escaped.find("<|fim_suffix|>") == std::string::npos && escaped.find("<|box_end|>") == std::string::npos, "no forged delimiter");
    fuzz::require(decisions::escape_markers(escaped) == escaped, "escaping twice changes nothing");
  }
  return 0;
}
