// A System One request (systemone.md 2): JSON in, questions with their rendered texts out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/json.h"

namespace chorus::decisions {

enum class QuestionType : uint8_t { noul, choice, score };
const char* question_type_name(QuestionType type);

struct Option {
  std::string name;  // noul "no" and "yes"; choice the label; score the rendered level
  std::string text;  // what the model reads: name, or name and description; not yet escaped
};

struct Question {
  std::string id;  // the caller's; never shown to the model
  QuestionType type = QuestionType::noul;
  std::string instructions;     // rendered
  std::vector<Option> options;  // request order; noul: no, yes
};

struct DecisionRequest {
  std::string model = "kev-latest";  // as the caller wrote it
  std::string state;                 // rendered
  std::vector<Question> questions;   // request order
};

struct RequestOptions {
  bool date_facts = false;  // annotate the state (kev.md 2.5)
};

// The body of POST /v1/systemone. Errors name the field ("questions.tone.criteria: ...").
Result<DecisionRequest> parse_request(std::string_view json, const RequestOptions& options = {});
Result<DecisionRequest> request_from_json(const formats::JsonValue& body, const RequestOptions& options = {});

// One question of a request. Also the way to build questions without JSON text.
Result<Question> question_from_json(std::string_view id, const formats::JsonValue& question);

// A question written on one line, 'id:type:instructions:optA|optB', as id and question JSON. A backslash takes the next character as it
// is, so that colons and bars can be written. A noul has no options, or two: the descriptions of no and of yes.
Result<std::pair<std::string, formats::JsonValue>> ask_to_json(std::string_view ask);

}  // namespace chorus::decisions
