#include "decisions/request.h"

#include <gtest/gtest.h>

namespace chorus::decisions {
namespace {

// A request around the questions.
std::string body(std::string_view questions) { return R"({"state": "s", "questions": )" + std::string(questions) + "}"; }

std::string failure(std::string_view json) {
  const auto request = parse_request(json);
  return request.ok() ? "accepted" : request.error().to_line();
}

std::vector<std::string> option_texts(std::string_view question) {
  const auto request = parse_request(body(R"({"q": )" + std::string(question) + "}"));
  if (!request.ok()) return {"error: " + request.error().to_line()};
  std::vector<std::string> texts;
  for (const Option& option : request->questions[0].options) texts.push_back(option.text);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Request, WholeRequest) {
  const auto request = parse_request(R"({"model": "jev-latest", "extra": [1], "state": {"document": "sentence"}, "questions": {
      "b": {"type": "choice", "instructions": ["x", "y"], "criteria": {"calm": null, "angry": "Hostile"}, "weight": 2},
      "a": {"type": "score", "criteria": ["can wait", {"when": "today"}, null]},
      "": {"type": "noul", "instructions": null, "criteria": {"true": "Charges", "other": 1, "false": "Not charges"}}}})");
  ASSERT_TRUE(request.ok()) << request.error().to_line();
  EXPECT_EQ(request->model, "jev-latest");
  EXPECT_EQ(request->state, "document: sentence");
  ASSERT_EQ(request->questions.size(), 3u);
  EXPECT_EQ(request->questions[0].id, "b");
  EXPECT_EQ(request->questions[0].instructions, "- x\n- y");
  EXPECT_EQ(request->questions[0].options[1].name, "angry");
  EXPECT_EQ(request->questions[0].options[1].text, "angry: Hostile");
  EXPECT_EQ(request->questions[1].id, "a");
  EXPECT_EQ(request->questions[1].instructions, "");
  EXPECT_EQ(request->questions[1].options[1].text, "when: today");
  EXPECT_EQ(request->questions[1].options[1].name, "when: today");
  EXPECT_EQ(request->questions[1].options[2].text, "");
  EXPECT_EQ(request->questions[2].id, "");
  EXPECT_EQ(request->questions[2].options[0].text, "no: Not charges");
  EXPECT_EQ(request->questions[2].options[1].text, "yes: Charges");
}

TEST(Request, Defaults) {
  const auto request = parse_request(R"({"state": null, "questions": {"q": {"type": "noul"}}})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->model, "kev-latest");
  EXPECT_EQ(request->state, "");
  for (const char* state : {"\"\"", "3", "true", "[]", "{}", "1.5"}) {
    EXPECT_EQ(failure(std::string(R"({"state": )") + state + R"(, "questions": {"q": {"type": "noul"}}})"), "accepted");
  }
}

TEST(Request, Descriptions) {
  EXPECT_EQ(option_texts(R"({"type": "noul"})"), (Texts{"no", "yes"}));
  EXPECT_EQ(option_texts(R"({"type": "noul", "criteria": null})"), (Texts{"no", "yes"}));
  EXPECT_EQ(option_texts(R"({"type": "noul", "criteria": {"no": "x", "yes": "y"}})"), (Texts{"no", "yes"}));
  EXPECT_EQ(option_texts(R"({"type": "noul", "criteria": {"true": false, "false": 0}})"), (Texts{"no: 0", "yes: False"}));
  EXPECT_EQ(option_texts(R"({"type": "noul", "criteria": {"true": [], "false": ""}})"), (Texts{"no", "yes: "}));
  EXPECT_EQ(option_texts(R"({"type": "choice", "criteria": {"a": {}, "b": "", "c": null, "d": {"k": [1]}}})"),
            (Texts{"a: ", "b", "c", "d: k:\n  - 1"}));
  EXPECT_EQ(option_texts(R"({"type": "score", "criteria": ["can wait", "today"]})"), (Texts{"can wait", "today"}));
}

TEST(Request, ErrorsNameTheField) {
  EXPECT_EQ(failure("[]"), "request: expected an object, found an array");
  EXPECT_EQ(failure(R"({"questions": {"q": {"type": "noul"}}})"), "state: missing; any JSON value is allowed, also null");
  EXPECT_EQ(failure(R"({"state": 1})"), "questions: missing; expected an object of at least one question");
  EXPECT_EQ(failure(R"({"state": 1, "model": 3, "questions": {}})"), "model: expected a string, found an integer");
  EXPECT_EQ(failure(body("{}")), "questions: expected at least one question, found none");
  EXPECT_EQ(failure(body("[]")), "questions: expected an object, found an array");
  EXPECT_EQ(failure(body(R"({"q": 1})")), "questions.q: expected an object, found an integer");
  EXPECT_EQ(failure(body(R"({"q": {}})")), "questions.q: the member \"type\" is missing");
  EXPECT_EQ(failure(body(R"({"q": {"type": null}})")), "questions.q.type: expected a string, found null");
  EXPECT_EQ(failure(body(R"({"q": {"type": "Noul"}})")), "questions.q.type: expected noul, choice or score, found \"Noul\"");
  EXPECT_EQ(failure(body(R"({"q": {"type": "choice"}})")), "questions.q.criteria: missing; a choice needs an object of options");
  EXPECT_EQ(failure(body(R"({"q": {"type": "score"}})")), "questions.q.criteria: missing; a score needs an array of levels");
  EXPECT_EQ(failure(body(R"({"q": {"type": "choice", "criteria": null}})")), "questions.q.criteria: expected an object, found null");
  EXPECT_EQ(failure(body(R"({"q": {"type": "choice", "criteria": ["a"]}})")), "questions.q.criteria: expected an object, found an array");
  EXPECT_EQ(failure(body(R"({"q": {"type": "score", "criteria": {"0": "a"}}})")),
            "questions.q.criteria: expected an array, found an object");
  EXPECT_EQ(failure(body(R"({"q": {"type": "noul", "criteria": []}})")),
            "questions.q.criteria: expected an object or null, found an array");
  EXPECT_EQ(failure(body(R"({"q": {"type": "choice", "criteria": {}}})")), "questions.q.criteria: expected 1 to 255 options, found 0");
  EXPECT_EQ(failure(body(R"({"q": {"type": "score", "criteria": []}})")), "questions.q.criteria: expected 1 to 255 levels, found 0");
}

TEST(Request, DuplicatesAreNamed) {
  EXPECT_NE(failure(body(R"({"q": {"type": "noul"}, "q": {"type": "noul"}})")).find("the key \"q\" appears twice"), std::string::npos);
  EXPECT_NE(failure(body(R"({"q": {"type": "choice", "criteria": {"a": 1, "a": 2}}})")).find("the key \"a\" appears twice"),
            std::string::npos);
  EXPECT_NE(failure(R"({"state": 1, "state": 2, "questions": {"q": {"type": "noul"}}})").find("the key \"state\" appears twice"),
            std::string::npos);
}

TEST(Request, OptionCounts) {
  const auto choice = [](int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += (i ? ", \"o" : "\"o") + std::to_string(i) + "\": null";
    return body(R"({"q": {"type": "choice", "criteria": {)" + list + "}}}");
  };
  const auto score = [](int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += (i ? ", " : "") + std::to_string(i);
    return body(R"({"q": {"type": "score", "criteria": [)" + list + "]}}");
  };
  EXPECT_EQ(failure(choice(1)), "accepted");
  EXPECT_EQ(failure(choice(255)), "accepted");
  EXPECT_EQ(failure(score(1)), "accepted");
  EXPECT_EQ(failure(score(255)), "accepted");
  EXPECT_EQ(failure(choice(256)), "questions.q.criteria: expected 1 to 255 options, found 256");
  EXPECT_EQ(failure(score(256)), "questions.q.criteria: expected 1 to 255 levels, found 256");
  EXPECT_EQ(parse_request(score(256)).error().code, ErrorCode::limit_exceeded);
}

TEST(Request, HostileText) {
  EXPECT_NE(failure("").find("malformed"), std::string::npos);
  EXPECT_NE(failure(body(R"({"q": {"type": "noul", "instructions": "\u0000"}})")).find("NUL"), std::string::npos);
  EXPECT_NE(failure(R"({"state": NaN, "questions": {"q": {"type": "noul"}}})").find("NaN"), std::string::npos);
  EXPECT_NE(failure(R"({"state": 1e999, "questions": {"q": {"type": "noul"}}})").find("overflows"), std::string::npos);
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  EXPECT_NE(failure(R"({"state": )" + deep + R"(, "questions": {"q": {"type": "noul"}}})").find("nested deeper"), std::string::npos);
  const std::string long_id(100'000, 'i');
  EXPECT_LT(failure(body("{\"" + long_id + "\": 1}")).size(), 300u);
  EXPECT_EQ(failure(body("{\"a\\nb\": 1}")).find('\n'), std::string::npos);
}

TEST(Ask, OneLineQuestions) {
  const auto ask = [](std::string_view text) {
    const auto parsed = ask_to_json(text);
    if (!parsed.ok()) return "error: " + parsed.error().message;
    return parsed->first + " " + formats::json_dumps(parsed->second);
  };
  EXPECT_EQ(ask("tone:choice:What tone?:calm|angry"),
            R"(tone {"type": "choice", "instructions": "What tone?", "criteria": {"calm": null, "angry": null}})");
  EXPECT_EQ(ask("u:score::low|high"), R"(u {"type": "score", "instructions": "", "criteria": ["low", "high"]})");
  EXPECT_EQ(ask("r:noul:Refund?"), R"(r {"type": "noul", "instructions": "Refund?"})");
  EXPECT_EQ(ask("r:noul:Refund?:Not wanted|Wanted"),
            R"(r {"type": "noul", "instructions": "Refund?", "criteria": {"false": "Not wanted", "true": "Wanted"}})");
  EXPECT_EQ(ask(R"(a\:b:choice:x\:y:p\|q|r:s\\)"),
            R"(a:b {"type": "choice", "instructions": "x:y", "criteria": {"p|q": null, "r:s\\": null}})");
  EXPECT_EQ(ask("r:noul:\xFF"), "error: the text is not valid UTF-8 at byte 7");
  EXPECT_EQ(ask("r"), "error: question 'r': expected id:type:instructions:option|option");
  EXPECT_EQ(ask("r:noul:x:a|b|c"), "error: question 'r:noul:x:a|b|c': a noul takes no options or two (no|yes), found 3");
  EXPECT_EQ(ask("r:choice:x:a|a"), "error: question 'r:choice:x:a|a': the option \"a\" appears twice");
}

}  // namespace
}  // namespace chorus::decisions
