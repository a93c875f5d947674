#include "generation/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/test_files.h"
#include "formats/test_tools.h"

namespace chorus::generation {
namespace {

using formats::JsonValue;
using formats::testing::expect_error;

const std::string kData = CHORUS_TEST_DATA;

JsonValue json(std::string_view text) {
  auto value = formats::parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? std::move(value).value() : JsonValue();
}

Result<std::string> render(std::string_view text, const JsonValue& variables = JsonValue::object(),
                           const jinja::MachineLimits& limits = {}) {
  CHORUS_ASSIGN(const jinja::Template parsed, jinja::Template::parse(text));
  return parsed.render(variables, 0, limits);
}

std::string rendered(std::string_view text) {
  auto result = render(text);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().to_line());
  return result.ok() ? *result : "";
}

// What Jinja2 made of the same templates and variables (tests/data/make_template_cases.py).
TEST(ChatTemplate, RendersAsTheReference) {
  ::setenv("TZ", "UTC", 1);
  const JsonValue file = formats::read_test_json(kData + "/templates.cases.json");
  const JsonValue* cases = file.find("cases");
  ASSERT_NE(cases, nullptr);
  ASSERT_GT(cases->items().size(), 150u);
  const int64_t now = *file.find("now")->as_int64("now");
  for (const JsonValue& entry : cases->items()) {
    const std::string& name = *entry.find("name")->string_if();
    const JsonValue& source = *entry.find("template");
    const std::string text =
        source.string_if() ? *source.string_if() : formats::read_test_file(kData + "/templates/" + *source.find("file")->string_if());
    ASSERT_FALSE(text.empty()) << name;
    auto parsed = jinja::Template::parse(text);
    Result<std::string> result = parsed.ok() ? parsed->render(*entry.find("variables"), now) : Result<std::string>(parsed.error());
    if (const JsonValue* expected = entry.find("expected")) {
      EXPECT_TRUE(result.ok()) << name << ": " << (result.ok() ? "" : result.error().to_line());
      if (result.ok()) {
        EXPECT_EQ(*result, *expected->string_if()) << name;
      }
    } else {
      SCOPED_TRACE(name + ": the reference says: " + *entry.find("error")->string_if());
      expect_error(result, "chat template: line ");
    }
  }
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  expect_error(render("a\nb\n{{ 1 + }}"), "line 3: expected an expression");
  expect_error(render("a\n{% if x %}\nb"), "line 2: a block is not closed");
  expect_error(render("\n\n{{ x.y }}"), "line 3: 'x' is undefined");
  expect_error(render("{% macro f() %}\n{{ raise_exception('why\nso') }}{% endmacro %}\n{{ f() }}"),
               "line 2: the template refuses: \"why\\x0aso\"");
  expect_error(render("{% include 'x' %}"), "unknown tag \"include\"");
  expect_error(render("{{ f(*x) }}"), "'*' in the arguments");
  expect_error(render("\xff"), "reading a chat template");
}

TEST(ChatTemplate, RenderingIsBounded) {
  jinja::MachineLimits limits;
  limits.steps_max = 10000;
  limits.output_bytes_max = 1000;
  limits.text_bytes_max = 100000;
  const JsonValue none = JsonValue::object();
  expect_error(render("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", none, limits), "steps");
  // Shared parts: forty levels are few values and an endless text.
  const std::string grown = "{% set n = namespace(a=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}{% endfor %}";
  expect_error(render(grown + "{{ n.a }}", none, limits), "holds more than");
  expect_error(render("{% set a = range(9000)|list %}{% for i in a %}{% if -1 in a %}{% endif %}{% endfor %}", none, limits), "steps");
  expect_error(render("{% for a in range(200) %}0123456789{% endfor %}", none, limits), "bytes of output");
  expect_error(render("{% set x = 'a' * 1000000000 %}", none, limits), "bytes of text");
  expect_error(render("{% set ns = namespace(x='aa') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", none, limits),
               "bytes of text");
  expect_error(render("{{ 'aaaa'.replace('', 'b' * 90000) }}", none, limits), "bytes of text");
  expect_error(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "nest too deep");
  expect_error(render("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "nest too deep");
  expect_error(render("{% set ns = namespace(x=[]) %}{% for a in range(500) %}{% set ns.x = [ns.x] %}{% endfor %}"), "nest deeper");
  expect_error(render("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), "nests too deep");
  expect_error(render("{{ " + std::string(5000, '-') + "1 }}"), "nests too deep");
  std::string nots = "{{ ", ifs, sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) nots += "not ", ifs += "{% if true %}", sum += " + 1";
  expect_error(render(nots + "x }}"), "nests too deep");
  expect_error(render(ifs), "nest too deep");
  expect_error(render(sum + " }}"), "nests too deep");
  expect_error(render(std::string((1u << 20) + 1, 'a')), "over the limit");
}

TEST(ChatTemplate, ValuesThatHoldEachOtherAreFreed) {  // seen by the leak check of the sanitizer build
  EXPECT_EQ(rendered("{% set a = namespace() %}{% set b = namespace(o=a) %}{% set a.o = b %}{% set a.l = [a, b] %}{{ a.o.o.l|length }}"),
            "2");
  EXPECT_EQ(rendered("{% for x in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}"), "TrueFalse");
  EXPECT_EQ(rendered("{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.f = loop %}{% macro m() %}{{ x }}{% endmacro %}{% "
                     "set ns.m = m %}{% endfor %}{{ ns.m() }}"),
            "1");
}

TEST(ChatTemplate, IntegersKeepToTheirRange) {
  expect_error(render("{{ 9223372036854775807 + 1 }}"), "larger than 64 bits");
  expect_error(render("{{ 3 ** 99 }}"), "larger than 64 bits");
  expect_error(render("{{ 99999999999999999999 }}"), "too large");
  EXPECT_EQ(rendered("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  expect_error(render("{{ (-9223372036854775807 - 1) // -1 }}"), "larger than 64 bits");
  expect_error(render("{{ -(-9223372036854775807 - 1) }}"), "larger than 64 bits");
  EXPECT_EQ(rendered("{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}"), "a");
}

TemplateFiles files(std::optional<std::string> chat_template, std::optional<std::string> config) {
  return {std::move(chat_template), std::move(config)};
}

TEST(ChatTemplate, IsFoundInTheFilesOfAModel) {
  const JsonValue messages = json(R"([{"role": "user", "content": "hi"}])");
  const std::string simple = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ sep_token is defined }}";
  const std::string tokens = R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null)";

  auto from_file = ChatTemplate::open(files(simple, tokens + "}"));
  ASSERT_TRUE(from_file.ok()) << from_file.error().to_line();
  EXPECT_EQ(*from_file->render(messages), "<s>hi</s>False");

  auto from_config =
      ChatTemplate::open(files({}, tokens + R"(, "chat_template": "{{ eos_token }}{{ add_generation_prompt }}{{ enable_thinking }}"})"));
  ASSERT_TRUE(from_config.ok());
  ChatOptions options;
  options.add_generation_prompt = false;
  options.variables.push_back({"enable_thinking", JsonValue::boolean(false)});
  EXPECT_EQ(*from_config->render(messages, options), "</s>FalseFalse");

  auto named = ChatTemplate::open(
      files({}, R"({"chat_template": [{"name": "tool_use", "template": "T{{ tools|length }}"}, {"name": "default", "template": "D"}]})"));
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(*named->render(messages), "D");
  options.tools = json("[{}]");
  EXPECT_EQ(*named->render(messages, options), "T1");
}

TEST(ChatTemplate, BrokenFilesAreOneLine) {
  expect_error(ChatTemplate::open(files({}, {})), "no chat template");
  expect_error(ChatTemplate::open(files({}, "{}")), "no chat template");
  expect_error(ChatTemplate::open(files({}, "{")), "reading tokenizer_config.json");
  expect_error(ChatTemplate::open(files({}, "[]")), "expected an object");
  expect_error(ChatTemplate::open(files("{% if %}", {})), "reading chat_template.jinja");
  expect_error(ChatTemplate::open(files({}, R"({"chat_template": 5})")), "chat_template");
  expect_error(ChatTemplate::open(files({}, R"({"chat_template": [{"name": "x", "template": "y"}]})")), "\"default\"");
  expect_error(ChatTemplate::open(files({}, R"({"chat_template": [{"name": 1, "template": "y"}]})")), "strings");

  auto good = ChatTemplate::open(files("x", {}));
  ASSERT_TRUE(good.ok());
  expect_error(good->render(json("{}")), "messages");
  expect_error(good->render(json("[]")), "at least one");
  expect_error(good->render(json("[1]")), "messages[0]: expected an object");
  expect_error(good->render(json(R"([{"content": "x"}])")), "messages[0]");
  expect_error(good->render(json(R"([{"role": 5}])")), "messages[0].role");
}

}  // namespace
}  // namespace chorus::generation
