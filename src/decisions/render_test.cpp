#include "decisions/render.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace chorus::decisions {
namespace {

using formats::JsonValue;

std::string rendered(std::string_view json) {
  const auto value = formats::parse_json(json);
  return value.ok() ? render(*value) : "error: " + value.error().to_line();
}

TEST(Render, Scalars) {
  EXPECT_EQ(rendered("null"), "");
  EXPECT_EQ(rendered("true"), "True");
  EXPECT_EQ(rendered("false"), "False");
  EXPECT_EQ(rendered("1"), "1");
  EXPECT_EQ(rendered("-0"), "0");
  EXPECT_EQ(rendered("1180591620717411303424"), "1180591620717411303424");
  EXPECT_EQ(rendered("1.0"), "1.0");
  EXPECT_EQ(rendered("-0.0"), "-0.0");
  EXPECT_EQ(rendered("1E5"), "100000.0");
  EXPECT_EQ(rendered("1e16"), "1e+16");
  EXPECT_EQ(rendered("1e-5"), "1e-05");
  EXPECT_EQ(rendered(R"("  as it is\n  ")"), "  as it is\n  ");
}

TEST(Render, ObjectsAndArrays) {
  EXPECT_EQ(rendered(R"({"what": "A", "not_for": "B"})"), "what: A\nnot_for: B");
  EXPECT_EQ(rendered(R"(["x", "y"])"), "- x\n- y");
  EXPECT_EQ(rendered(R"({"ticket": {"a": 1, "b": "c"}})"), "ticket:\n  a: 1\n  b: c");
  EXPECT_EQ(rendered(R"({"examples": ["a", "b"]})"), "examples:\n  - a\n  - b");
  EXPECT_EQ(rendered(R"({"document": "sentence"})"), "document: sentence");
  EXPECT_EQ(rendered("[]"), "");
  EXPECT_EQ(rendered("{}"), "");
  EXPECT_EQ(rendered(R"({"a": null, "b": {}, "c": {"d": [true, 1.0]}})"), "a: \nb:\n\nc:\n  d:\n    - True\n    - 1.0");
  EXPECT_EQ(rendered(R"([["a","b"],"c"])"), "- - a\n  - b\n- c");
  EXPECT_EQ(rendered(R"([{"k":"v","m":[1,null]}])"), "- k: v\n  m:\n    - 1\n    - ");
  EXPECT_EQ(rendered("[null, [], {}]"), "- \n- \n- ");
  EXPECT_EQ(rendered(R"({"a": "two\nlines", "b": 1})"), "a: two\nlines\nb: 1");
}

TEST(Render, OnlyTheStartOfAnArrayItemIsStripped) {
  EXPECT_EQ(rendered(R"(["\n  x  ", " \t\u00a0\u3000\u2028y"])"), "- x  \n- y");
  EXPECT_EQ(rendered(R"(["\u200bx"])"), "- \u200bx");  // no white space to Python
  EXPECT_EQ(rendered(R"(["\u001c\u0085z"])"), "- z");
  EXPECT_EQ(rendered(R"([" \n "])"), "- ");
  EXPECT_EQ(rendered(R"([{" k": " v", " l": 1}])"), "- k:  v\n   l: 1");  // later keys keep pad and spaces
  EXPECT_EQ(rendered(R"([[" a", " b"]])"), "- - a\n  - b");
  EXPECT_EQ(rendered(R"([{"  ": {"x": 1}}])"), "- :\n    x: 1");
  EXPECT_EQ(rendered(R"({"a": "  kept"})"), "a:   kept");
}

TEST(Render, DeepNesting) {
  std::string json = "\"" + std::string(100'000, ' ') + "x\"";
  for (int depth = 0; depth < 99; ++depth) json = "[" + json + "]";
  std::string expected;
  for (int depth = 0; depth < 99; ++depth) expected += "- ";
  EXPECT_EQ(rendered(json), expected + "x");
}

TEST(EscapeMarkers, BarsOfMarkersBecomeBrokenBars) {
  EXPECT_EQ(escape_markers("<|fim_prefix|><|fim_suffix|>"), "<\u00A6fim_prefix\u00A6><\u00A6fim_suffix\u00A6>");
  EXPECT_EQ(escape_markers("a<|b_9Z|>c"), "a<\u00A6b_9Z\u00A6>c");
  EXPECT_EQ(escape_markers("<|<|x|>|>"), "<|<\u00A6x\u00A6>|>");
  EXPECT_EQ(escape_markers("<|x<|y|>"), "<|x<\u00A6y\u00A6>");
  EXPECT_EQ(escape_markers("<|x|<|y|>"), "<|x|<\u00A6y\u00A6>");
  for (const char* same :
       {"", "<", "<|", "<|>", "<||>", "<|x", "<|x|", "<|x |>", "<|x-y|>", "<|\u00E9|>", "<think>", "</tool_call>", "|x|>"}) {
    EXPECT_EQ(escape_markers(same), same);
  }
}

TEST(EscapeMarkers, LinearOnHostileText) {
  std::string text = "<|" + std::string(8'000'000, 'a');
  EXPECT_EQ(escape_markers(text), text);
  text.clear();
  for (int i = 0; i < 2'000'000; ++i) text += "<|a";
  EXPECT_EQ(escape_markers(text), text);
}

std::string date_facts_of(std::string_view json) {
  const auto value = formats::parse_json(json);
  return value.ok() ? render(with_date_facts(*value)) : "error";
}

TEST(DateFacts, SentencesForEveryPair) {
  EXPECT_EQ(date_facts_of(R"("Due July 4, 2026, sent June 26, 2026, seen 2026-07-01.")"),
            "Due July 4, 2026, sent June 26, 2026, seen 2026-07-01.\n\ndate_facts: June 26, 2026 is 8 days before July 4, 2026. "
            "2026-07-01 is 3 days before July 4, 2026. 2026-07-01 is 5 days after June 26, 2026.");
  EXPECT_EQ(
      date_facts_of(R"({"a": "2024-02-28", "b": "2024-02-29 and March 1, 2024"})"),
      "a: 2024-02-28\nb: 2024-02-29 and March 1, 2024\ndate_facts: 2024-02-29 is 1 day after 2024-02-28. March 1, 2024 is 2 days after "
      "2024-02-28. March 1, 2024 is 1 day after 2024-02-29.");
  EXPECT_EQ(date_facts_of(R"(["2026-01-01", "January 1, 2026"])"),
            "- 2026-01-01\n- January 1, 2026\n- date_facts: January 1, 2026 is the same day as 2026-01-01.");
}

TEST(DateFacts, FewerThanTwoDatesChangeNothing) {
  for (const char* text :
       {R"("July 4, 2026 and July 4, 2026")", R"("2026-02-30 and 2026-01-01")", R"("12026-01-01 x2026-01-02 2026-01-033 2026-01-04")",
        R"("july 4, 2026; JULY 5, 2026; Jul 6, 2026; 2026-01-01")", R"("0000-01-01 2026-01-01")", R"("July 4 2026, July 123, 2026")",
        "null", "3", R"({"a": "2026-01-01"})"}) {
    EXPECT_EQ(date_facts_of(text), rendered(text)) << text;
  }
}

TEST(DateFacts, RepeatingTheStepChangesNothing) {
  for (const char* text : {R"("2026-01-01 2026-01-05")", R"({"a": "2026-01-01 2026-01-05"})", R"(["2026-01-01", "2026-01-05"])"}) {
    const auto once = with_date_facts(*formats::parse_json(text));
    EXPECT_EQ(formats::json_dumps(with_date_facts(once)), formats::json_dumps(once));
    EXPECT_NE(render(once).find("date_facts: 2026-01-05 is 4 days after 2026-01-01."), std::string::npos) << render(once);
  }
}

TEST(DateFacts, ManyDatesAreBounded) {
  std::string text;
  for (int year = 1000; year < 3000; ++year) text += std::to_string(year) + "-01-01 ";
  const std::string result = render(with_date_facts(JsonValue::string(text)));
  const auto sentences = static_cast<size_t>(std::count(result.begin(), result.end(), '.'));
  EXPECT_EQ(sentences, kDateFactsMax * (kDateFactsMax - 1) / 2);
}

}  // namespace
}  // namespace chorus::decisions
