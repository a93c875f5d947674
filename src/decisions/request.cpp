#include "decisions/request.h"

#include <algorithm>

#include "base/limits.h"
#include "decisions/render.h"
#include "formats/unicode.h"

namespace chorus::decisions {
namespace {

using formats::JsonMember;
using formats::JsonValue;

Error invalid(std::string message) { return make_error(ErrorCode::invalid_input, std::move(message)); }

// A caller's text as it appears in a message: printable and not endless.
std::string shown(std::string_view text) {
  constexpr size_t kShown = 64;
  size_t end = std::min(text.size(), kShown);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  std::string line(text.substr(0, end));
  for (char& byte : line) {
    if (static_cast<unsigned char>(byte) < 0x20u || byte == 0x7F) byte = ' ';
  }
  return end < text.size() ? line + "..." : line;
}

std::string rendered(const JsonValue* value) { return value == nullptr ? std::string() : render(*value); }

// name, or "name: description"; null, absent and "" are no description, every other value is one.
std::string with_description(std::string_view name, const JsonValue* description) {
  const bool none = description == nullptr || description->is_null() || (description->is_string() && description->string_if()->empty());
  return none ? std::string(name) : std::string(name) + ": " + render(*description);
}

Status check_option_count(size_t count, const char* noun, const std::string& where) {
  if (count >= 1 && count <= limits::kOptionsMax) return {};
  return make_error(
      count == 0 ? ErrorCode::invalid_input : ErrorCode::limit_exceeded,
      where + ".criteria: expected 1 to " + std::to_string(limits::kOptionsMax) + " " + noun + ", found " + std::to_string(count));
}

Result<std::vector<Option>> noul_options(const JsonValue* criteria, const std::string& where) {
  if (criteria != nullptr && !criteria->is_null() && !criteria->is_object()) {
    return invalid(where + ".criteria: expected an object or null, found " + formats::json_kind_name(criteria->kind()));
  }
  const auto description = [&](std::string_view key) { return criteria == nullptr ? nullptr : criteria->find(key); };
  return std::vector<Option>{{"no", with_description("no", description("false"))}, {"yes", with_description("yes", description("true"))}};
}

Result<std::vector<Option>> choice_options(const JsonValue* criteria, const std::string& where) {
  if (criteria == nullptr) return invalid(where + ".criteria: missing; a choice needs an object of options");
  CHORUS_ASSIGN(const auto members, criteria->as_object(where + ".criteria"));
  CHORUS_TRY(check_option_count(members.size(), "options", where));
  std::vector<Option> options;
  options.reserve(members.size());
  for (const JsonMember& member : members) options.push_back({member.key, with_description(member.key, &member.value)});
  return options;
}

Result<std::vector<Option>> score_options(const JsonValue* criteria, const std::string& where) {
  if (criteria == nullptr) return invalid(where + ".criteria: missing; a score needs an array of levels");
  CHORUS_ASSIGN(const auto items, criteria->as_array(where + ".criteria"));
  CHORUS_TRY(check_option_count(items.size(), "levels", where));
  std::vector<Option> options;
  options.reserve(items.size());
  for (const JsonValue& item : items) {
    std::string text = render(item);
    options.push_back({text, text});
  }
  return options;
}

Result<QuestionType> question_type(const JsonValue& question, const std::string& where) {
  CHORUS_ASSIGN(const JsonValue* value, question.member("type", where));
  CHORUS_ASSIGN(const std::string_view name, value->as_string(where + ".type"));
  for (const QuestionType type : {QuestionType::noul, QuestionType::choice, QuestionType::score}) {
    if (name == question_type_name(type)) return type;
  }
  return invalid(where + ".type: expected noul, choice or score, found \"" + shown(name) + "\"");
}

// Cuts at each unescaped separator; the escapes stay for the next cut.
std::vector<std::string_view> cut(std::string_view text, char separator, size_t parts_max) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  for (size_t at = 0; at < text.size() && parts.size() + 1 < parts_max; ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == separator) {
      parts.push_back(text.substr(start, at - start));
      start = at + 1;
    }
  }
  parts.push_back(text.substr(start));
  return parts;
}

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    out += text[at];
  }
  return out;
}

Result<JsonValue> ask_criteria(std::string_view type, std::string_view list, const std::string& where) {
  std::vector<std::string> options;
  for (const std::string_view part : cut(list, '|', SIZE_MAX)) options.push_back(without_escapes(part));
  if (type == "score") {
    JsonValue levels = JsonValue::array();
    for (std::string& option : options) levels.push_back(JsonValue::string(std::move(option)));
    return levels;
  }
  JsonValue criteria = JsonValue::object();
  if (type == "noul") {
    if (options.size() != 2) {
      return make_error(ErrorCode::invalid_argument,
                        where + ": a noul takes no options or two (no|yes), found " + std::to_string(options.size()));
    }
    criteria.append("false", JsonValue::string(options[0]));
    criteria.append("true", JsonValue::string(options[1]));
    return criteria;
  }
  for (const std::string& option : options) {
    if (criteria.find(option) != nullptr) {
      return make_error(ErrorCode::invalid_argument, where + ": the option \"" + shown(option) + "\" appears twice");
    }
    criteria.append(option, JsonValue());
  }
  return criteria;
}

}  // namespace

const char* question_type_name(QuestionType type) {
  switch (type) {
    case QuestionType::noul:
      return "noul";
    case QuestionType::choice:
      return "choice";
    case QuestionType::score:
      return "score";
  }
  return "unknown";
}

Result<Question> question_from_json(std::string_view id, const JsonValue& body) {
  const std::string where = "questions." + shown(id);
  if (!body.is_object()) return invalid(where + ": expected an object, found " + formats::json_kind_name(body.kind()));
  Question question;
  question.id = std::string(id);
  CHORUS_ASSIGN(question.type, question_type(body, where));
  question.instructions = rendered(body.find("instructions"));
  const JsonValue* criteria = body.find("criteria");
  switch (question.type) {
    case QuestionType::noul: {
      CHORUS_ASSIGN(question.options, noul_options(criteria, where));
      break;
    }
    case QuestionType::choice: {
      CHORUS_ASSIGN(question.options, choice_options(criteria, where));
      break;
    }
    case QuestionType::score: {
      CHORUS_ASSIGN(question.options, score_options(criteria, where));
      break;
    }
  }
  return question;
}

Result<DecisionRequest> request_from_json(const JsonValue& body, const RequestOptions& options) {
  if (!body.is_object()) return invalid(std::string("request: expected an object, found ") + formats::json_kind_name(body.kind()));
  DecisionRequest request;
  if (const JsonValue* model = body.find("model")) {
    CHORUS_ASSIGN(const std::string_view name, model->as_string("model"));
    request.model = std::string(name);
  }
  const JsonValue* state = body.find("state");
  if (state == nullptr) return invalid("state: missing; any JSON value is allowed, also null");
  request.state = render(options.date_facts ? with_date_facts(*state) : *state);

  const JsonValue* questions = body.find("questions");
  if (questions == nullptr) return invalid("questions: missing; expected an object of at least one question");
  CHORUS_ASSIGN(const auto members, questions->as_object("questions"));
  if (members.empty()) return invalid("questions: expected at least one question, found none");
  if (members.size() > limits::kQuestionsMax) {
    return make_error(ErrorCode::limit_exceeded, "questions: " + std::to_string(members.size()) + " questions are over the limit of " +
                                                     std::to_string(limits::kQuestionsMax));
  }
  request.questions.reserve(members.size());
  for (const JsonMember& member : members) {
    CHORUS_ASSIGN(Question question, question_from_json(member.key, member.value));
    request.questions.push_back(std::move(question));
  }
  return request;
}

Result<DecisionRequest> parse_request(std::string_view json, const RequestOptions& options) {
  CHORUS_ASSIGN(const JsonValue body, formats::parse_json(json, {.bytes_max = limits::kRequestBytesMax}));
  return request_from_json(body, options);
}

Result<std::pair<std::string, JsonValue>> ask_to_json(std::string_view ask) {
  const std::vector<std::string_view> parts = cut(ask, ':', 4);
  const std::string where = "question '" + shown(ask) + "'";
  CHORUS_TRY(formats::check_utf8(ask));
  if (parts.size() < 2) return make_error(ErrorCode::invalid_argument, where + ": expected id:type:instructions:option|option");
  const std::string type = without_escapes(parts[1]);
  JsonValue body = JsonValue::object();
  body.append("type", JsonValue::string(type));
  if (parts.size() > 2) body.append("instructions", JsonValue::string(without_escapes(parts[2])));
  if (parts.size() > 3 && !parts[3].empty()) {
    CHORUS_ASSIGN(JsonValue criteria, ask_criteria(type, parts[3], where));
    body.append("criteria", std::move(criteria));
  }
  return std::pair(without_escapes(parts[0]), std::move(body));
}

}  // namespace chorus::decisions
