// Chat templates: any text is parsed, and rendered within bounds when it is a template.
#include <string>

#include "fuzz_tools.h"
#include "generation/chat_template.h"

namespace {

const chorus::formats::JsonValue& messages() {
  static const auto parsed = chorus::formats::parse_json(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "é 1"}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}])");
  return *parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = chorus::generation::jinja::Template::parse(chorus::fuzz::as_text(data, size));
  if (!parsed.ok()) return 0;
  chorus::generation::jinja::MachineLimits limits;
  limits.steps_max = 100'000;
  limits.text_bytes_max = 4 << 20;
  limits.output_bytes_max = 1 << 20;
  chorus::formats::JsonValue variables = chorus::formats::JsonValue::object();
  variables.set("messages", messages());
  variables.set("add_generation_prompt", chorus::formats::JsonValue::boolean(true));
  variables.set("bos_token", chorus::formats::JsonValue::string("<s>"));
  const auto rendered = parsed->render(variables, 0, limits);
  chorus::fuzz::require(rendered.ok() || rendered.error().to_line().find('\n') == std::string::npos, "an error is one line");
  return 0;
}
