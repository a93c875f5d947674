#include "generation/chat_template.h"

#include <ctime>

#include "base/bytes.h"
#include "generation/jinja/parser.h"

namespace chorus::generation {

namespace {

using formats::JsonValue;

constexpr uint64_t kTokenizerConfigBytesMax = 16ull << 20;
constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

Result<std::optional<std::string>> read_optional(const std::filesystem::path& path, uint64_t bytes_max) {
  if (!name_is_taken(path)) return std::optional<std::string>();
  CHORUS_ASSIGN(std::string text, read_text_file(path, bytes_max));
  return std::optional<std::string>(std::move(text));
}

// A token is a string, or an object with the string as "content".
std::optional<std::string> token_text(const JsonValue* value) {
  if (value != nullptr && value->is_object()) value = value->find("content");
  if (value == nullptr || value->string_if() == nullptr) return std::nullopt;
  return *value->string_if();
}

Error with_place(Error error, std::string_view place) { return std::move(error).with_context("reading " + std::string(place)); }

Result<std::optional<jinja::Template>> parse_template(std::string_view text, std::string_view place) {
  auto parsed = jinja::Template::parse(text);
  if (!parsed) return with_place(std::move(parsed).error(), place);
  return std::optional<jinja::Template>(std::move(parsed).value());
}

struct NamedTemplates {
  const std::string* plain = nullptr;
  const std::string* with_tools = nullptr;
};

// chat_template of tokenizer_config.json: a string, or a list of {name, template}.
Result<NamedTemplates> named_templates(const JsonValue& config) {
  NamedTemplates found;
  const JsonValue* value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return found;
  if (value->string_if() != nullptr) {
    found.plain = value->string_if();
    return found;
  }
  CHORUS_ASSIGN(const auto items, value->as_array("tokenizer_config.json: chat_template"));
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const JsonValue* name, item.member("name", "tokenizer_config.json: chat_template"));
    CHORUS_ASSIGN(const JsonValue* text, item.member("template", "tokenizer_config.json: chat_template"));
    if (name->string_if() == nullptr || text->string_if() == nullptr) {
      return make_error(ErrorCode::invalid_input, "tokenizer_config.json: chat_template: expected name and template to be strings");
    }
    if (*name->string_if() == "default") found.plain = text->string_if();
    if (*name->string_if() == "tool_use") found.with_tools = text->string_if();
  }
  if (found.plain == nullptr) {
    return make_error(ErrorCode::invalid_input, "tokenizer_config.json: chat_template: expected one with the name \"default\", found none");
  }
  return found;
}

}  // namespace

Result<TemplateFiles> TemplateFiles::read(const std::filesystem::path& folder) {
  TemplateFiles files;
  CHORUS_ASSIGN(files.chat_template, read_optional(folder / "chat_template.jinja", jinja::kTemplateBytesMax));
  CHORUS_ASSIGN(files.tokenizer_config, read_optional(folder / "tokenizer_config.json", kTokenizerConfigBytesMax));
  return files;
}

Result<ChatTemplate> ChatTemplate::open(const TemplateFiles& files) {
  ChatTemplate made;
  JsonValue config = JsonValue::object();
  if (files.tokenizer_config) {
    auto parsed = formats::parse_json(*files.tokenizer_config);
    if (!parsed) return with_place(std::move(parsed).error(), "tokenizer_config.json");
    config = std::move(parsed).value();
    if (!config.is_object()) return make_error(ErrorCode::invalid_input, "tokenizer_config.json: expected an object");
  }
  for (const std::string_view name : kSpecialTokens) {
    if (auto text = token_text(config.find(name))) made.special_tokens_.emplace_back(name, std::move(*text));
  }
  if (files.chat_template) {
    CHORUS_ASSIGN(made.plain_, parse_template(*files.chat_template, "chat_template.jinja"));
    return made;
  }
  CHORUS_ASSIGN(const NamedTemplates found, named_templates(config));
  if (found.plain == nullptr) {
    return make_error(ErrorCode::not_found,
                      "the model has no chat template: expected chat_template.jinja, or chat_template in tokenizer_config.json");
  }
  CHORUS_ASSIGN(made.plain_, parse_template(*found.plain, "tokenizer_config.json"));
  if (found.with_tools != nullptr) {
    CHORUS_ASSIGN(made.with_tools_, parse_template(*found.with_tools, "tokenizer_config.json"));
  }
  return made;
}

Result<std::string> ChatTemplate::render(const JsonValue& messages, const ChatOptions& options) const {
  CHORUS_TRY(check_messages(messages));
  JsonValue variables = JsonValue::object();
  for (const auto& [name, text] : special_tokens_) variables.set(name, JsonValue::string(text));
  variables.set("messages", messages);
  variables.set("tools", options.tools);
  variables.set("documents", JsonValue());
  variables.set("add_generation_prompt", JsonValue::boolean(options.add_generation_prompt));
  for (const formats::JsonMember& member : options.variables) variables.set(member.key, member.value);
  const jinja::Template& chosen = !options.tools.is_null() && with_tools_ ? *with_tools_ : *plain_;
  return chosen.render(variables, options.unix_time.value_or(static_cast<int64_t>(std::time(nullptr))));
}

Status check_messages(const JsonValue& messages) {
  CHORUS_ASSIGN(const auto items, messages.as_array("messages"));
  if (items.empty()) return make_error(ErrorCode::invalid_input, "messages: expected at least one");
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (!items[i].is_object()) {
      return make_error(ErrorCode::invalid_input, where + ": expected an object, found " + formats::json_kind_name(items[i].kind()));
    }
    CHORUS_ASSIGN(const JsonValue* role, items[i].member("role", where));
    CHORUS_TRY(role->as_string(where + ".role"));
  }
  return {};
}

}  // namespace chorus::generation
