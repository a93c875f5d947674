#include "generation/generation_config.h"

#include <string>

#include "formats/json.h"

namespace chorus::generation {

namespace {

using formats::JsonValue;

constexpr uint32_t kEndTokensMax = 256;

Result<uint32_t> whole_number(const JsonValue& value, const std::string& name) {
  const std::string what = "generation_config.json: " + name;
  CHORUS_ASSIGN(const uint64_t number, value.as_uint64(what));
  if (number <= UINT32_MAX) return static_cast<uint32_t>(number);
  return make_error(ErrorCode::invalid_input,
                    what + ": expected at most " + std::to_string(UINT32_MAX) + ", found " + std::to_string(number));
}

Status read_end_tokens(const JsonValue& config, std::vector<uint32_t>& tokens) {
  const JsonValue* value = config.find("eos_token_id");
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_array()) {
    CHORUS_ASSIGN(const uint32_t token, whole_number(*value, "eos_token_id"));
    tokens.push_back(token);
    return {};
  }
  if (value->items().size() > kEndTokensMax) {
    return make_error(ErrorCode::limit_exceeded,
                      "generation_config.json: eos_token_id: more than " + std::to_string(kEndTokensMax) + " tokens");
  }
  for (const JsonValue& item : value->items()) {
    CHORUS_ASSIGN(const uint32_t token, whole_number(item, "eos_token_id"));
    tokens.push_back(token);
  }
  return {};
}

Status read_number(const JsonValue& config, const char* name, float& out) {
  const JsonValue* value = config.find(name);
  if (value == nullptr || value->is_null()) return {};
  CHORUS_ASSIGN(const double number, value->as_double(std::string("generation_config.json: ") + name));
  out = static_cast<float>(number);
  return {};
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json) {
  auto parsed = formats::parse_json(json);
  if (!parsed) return std::move(parsed).error().with_context("reading generation_config.json");
  const JsonValue config = std::move(parsed).value();
  if (!config.is_object()) return make_error(ErrorCode::invalid_input, "generation_config.json: expected an object");
  GenerationConfig made;
  CHORUS_TRY(read_end_tokens(config, made.end_tokens));
  CHORUS_TRY(read_number(config, "repetition_penalty", made.sampling.repetition_penalty));
  bool samples = false;
  if (const JsonValue* value = config.find("do_sample"); value != nullptr && !value->is_null()) {
    CHORUS_ASSIGN(samples, value->as_bool("generation_config.json: do_sample"));
  }
  if (samples) {
    made.sampling.temperature = 1;
    CHORUS_TRY(read_number(config, "temperature", made.sampling.temperature));
    CHORUS_TRY(read_number(config, "top_p", made.sampling.top_p));
    CHORUS_TRY(read_number(config, "min_p", made.sampling.min_p));
    made.sampling.top_k = 50;  // the reference's default
    if (const JsonValue* value = config.find("top_k"); value != nullptr && !value->is_null()) {
      CHORUS_ASSIGN(made.sampling.top_k, whole_number(*value, "top_k"));
    }
  }
  auto checked = check_sampling(made.sampling, UINT32_MAX);
  if (!checked) {
    Error error = std::move(checked).error();
    error.code = ErrorCode::invalid_input;
    return std::move(error).with_context("reading generation_config.json");
  }
  return made;
}

}  // namespace chorus::generation
