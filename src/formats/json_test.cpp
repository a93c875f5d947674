#include "formats/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace chorus::formats {
namespace {

std::string dumped(std::string_view text) {
  const auto value = parse_json(text);
  return value.ok() ? json_dumps(*value) : "error: " + value.error().message;
}

std::string failure(std::string_view text, const JsonLimits& limits = {}) {
  const auto value = parse_json(text, limits);
  return value.ok() ? "accepted" : value.error().to_line();
}

TEST(Json, KeepsOrderKindsAndDigits) {
  EXPECT_EQ(dumped(R"({"b":1,"a":[true,false,null],"":{}})"), R"({"b": 1, "a": [true, false, null], "": {}})");
  EXPECT_EQ(dumped("1180591620717411303424"), "1180591620717411303424");
  EXPECT_EQ(dumped("-1180591620717411303424"), "-1180591620717411303424");
  EXPECT_EQ(dumped("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(dumped("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(dumped("-0"), "0");
  EXPECT_EQ(dumped("[1, 1.0, 1e0]"), "[1, 1.0, 1.0]");
  const std::string digits(4000, '7');
  EXPECT_EQ(dumped(digits), digits);
}

TEST(Json, FloatsPrintAsPython) {
  EXPECT_EQ(dumped("[1.0, -0.0, 1E5, 1e15, 1e16, 1e20, 0.0001, 1e-5]"),
            "[1.0, -0.0, 100000.0, 1000000000000000.0, 1e+16, 1e+20, 0.0001, 1e-05]");
  EXPECT_EQ(dumped("[0.1, 123456.789, 1.7976931348623157e308, 5e-324, 1e-400, -1e-400]"),
            "[0.1, 123456.789, 1.7976931348623157e+308, 5e-324, 0.0, -0.0]");
  EXPECT_EQ(python_float_text(0.00012345), "0.00012345");
  EXPECT_EQ(python_float_text(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(python_float_text(1.5e-7), "1.5e-07");
  EXPECT_EQ(python_float_text(1.25e100), "1.25e+100");
  EXPECT_EQ(python_float_text(-2.5), "-2.5");
  EXPECT_EQ(python_float_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(python_float_text(std::nan("")), "nan");
}

TEST(Json, StringsEscapeAsPython) {
  EXPECT_EQ(dumped(R"("a\"\\\/\b\f\n\r\t\u0001\u007f\u00e9\ud83d\ude00")"), R"("a\"\\/\b\f\n\r\t\u0001\u007f\u00e9\ud83d\ude00")");
  const JsonValue value = JsonValue::string("\x7F\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(json_dumps(value, {.item_separator = ",", .key_separator = ":", .ensure_ascii = false}), "\"\x7F\xC3\xA9\xF0\x9F\x98\x80\"");
}

TEST(Json, MalformedTextNamesThePlace) {
  EXPECT_EQ(failure("{\"a\": 1,\n  \"b\": tru}"), "JSON is malformed at line 2, column 11 (byte 19): invalid literal");
  EXPECT_NE(failure("").find("line 1, column 1"), std::string::npos);
  for (const char* text :
       {"[1,]", "{\"a\" 1}", "[1 2]", "{", "[", "\"abc", "01", "1.", "+1", "'a'", "[1]x", "{1:2}", "nul", "\"\\x\"", "\"\x01\""}) {
    EXPECT_NE(failure(text).find("JSON is malformed at line "), std::string::npos) << text;
  }
  for (const char* text : {"NaN", "[1, NaN]", "Infinity", "-Infinity", "{\"a\": -Infinity}"}) {
    EXPECT_NE(failure(text).find("NaN and Infinity"), std::string::npos) << text << ": " << failure(text);
  }
}

TEST(Json, RefusesWhatHasNoSingleMeaning) {
  EXPECT_NE(failure(R"({"q": {"x": 1, "y": 2, "x": 3}})").find("the key \"x\" appears twice"), std::string::npos);
  EXPECT_NE(failure(R"({"a": [1, 1e400]})").find("JSON at a[1]: the number overflows a double"), std::string::npos);
  EXPECT_NE(failure("-1e999").find("overflows"), std::string::npos);
  EXPECT_NE(failure(R"(["\u0000"])").find("NUL"), std::string::npos);
  EXPECT_NE(failure(R"({"a\u0000": 1})").find("NUL"), std::string::npos);
  EXPECT_TRUE(parse_json(R"("\u0000")", {.nul_allowed = true}).ok());
  for (const char* text : {R"("\ud800")", R"("\udc00")", R"("\ud800\u0041")", R"("\ud83d\ud83d")"}) {
    EXPECT_NE(failure(text).find("surrogate"), std::string::npos) << failure(text);
  }
  for (const char* text : {"\"\xC3\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xFF\"", "\"\xE2\x82\""}) {
    EXPECT_NE(failure(text).find("malformed"), std::string::npos) << failure(text);
  }
}

TEST(Json, LimitsHold) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(100)).ok());
  EXPECT_NE(failure(nested(101)).find("nested deeper than 100"), std::string::npos);
  EXPECT_NE(failure(std::string(10'000'000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_EQ(parse_json("[1,2,3]", {.bytes_max = 6}).error().code, ErrorCode::limit_exceeded);
  EXPECT_TRUE(parse_json("[1,2,3]", {.values_max = 4}).ok());
  EXPECT_EQ(parse_json("[1,2,3]", {.values_max = 3}).error().code, ErrorCode::limit_exceeded);
  const std::string endless(1'000'000, '9');  // an integer past long double
  EXPECT_FALSE(parse_json(endless).ok());
}

TEST(Json, MessagesDoNotEchoWithoutEnd) {
  const std::string key(100'000, 'k');
  EXPECT_LT(failure("{\"" + key + "\": 1, \"" + key + "\": 2}").size(), 500u);
  EXPECT_LT(failure("{\"" + key + "\": 1e999}").size(), 500u);
  EXPECT_LT(failure("[\"" + key).size(), 500u);
}

TEST(Json, CheckedAccess) {
  const auto value = parse_json(R"({"n": 3, "f": 2.5, "s": "x", "neg": -1, "big": 99999999999999999999, "list": [1], "b": true})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value->find("n")->as_uint64("n"), 3u);
  EXPECT_EQ(*value->find("n")->as_double("n"), 3.0);
  EXPECT_EQ(*value->find("f")->as_double("f"), 2.5);
  EXPECT_EQ(*value->find("s")->as_string("s"), "x");
  EXPECT_TRUE(*value->find("b")->as_bool("b"));
  EXPECT_EQ(value->find("f")->as_int64("config: f").error().message, "config: f: expected an integer, found a number with a fraction");
  EXPECT_EQ(value->find("neg")->as_uint64("neg").error().message, "neg: expected 0 or more, found -1");
  EXPECT_EQ(*value->find("neg")->as_int64("neg"), -1);
  EXPECT_FALSE(value->find("big")->as_uint64("big").ok());
  EXPECT_EQ(*value->find("big")->as_double("big"), 1e20);
  EXPECT_EQ(value->member("none", "config").error().message, "config: the member \"none\" is missing");
  EXPECT_EQ(value->find("none"), nullptr);
  EXPECT_EQ(value->find("list")->items().size(), 1u);
  EXPECT_FALSE(value->find("s")->as_array("s").ok());
}

}  // namespace
}  // namespace chorus::formats
