// A model's chat template: conversation in, prompt text out. Owns: finding the template and the special tokens in a model's files, the
// variables that templates expect. Must not know: token ids, generation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/json.h"
#include "generation/jinja/template.h"

namespace chorus::generation {

// What a model's folder says about templates. Both may be missing.
struct TemplateFiles {
  std::optional<std::string> chat_template;     // chat_template.jinja
  std::optional<std::string> tokenizer_config;  // tokenizer_config.json

  static Result<TemplateFiles> read(const std::filesystem::path& folder);
};

struct ChatOptions {
  bool add_generation_prompt = true;
  formats::JsonValue tools;          // null, or an array of tool definitions
  formats::JsonObject variables;     // more variables, such as enable_thinking; they win over the template's usual ones
  std::optional<int64_t> unix_time;  // what strftime_now shows; absent: now
};

class ChatTemplate {
 public:
  // Errors: not_found (the files have no template), invalid_input (it does not parse; the line is named).
  static Result<ChatTemplate> open(const TemplateFiles& files);

  // `messages`: an array of objects, passed on as they are. Errors: invalid_input, limit_exceeded; what the template itself refuses.
  Result<std::string> render(const formats::JsonValue& messages, const ChatOptions& options = {}) const;

  // Named special tokens of tokenizer_config.json: bos_token, eos_token ...
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const { return special_tokens_; }

 private:
  std::optional<jinja::Template> plain_, with_tools_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
};

// Checks the form of a conversation: a non-empty array of objects, each with a string "role". Errors name the message.
Status check_messages(const formats::JsonValue& messages);

}  // namespace chorus::generation
