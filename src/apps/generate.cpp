// `chorus generate`: a language model continues a text or answers a conversation.
#include <cstdio>

#include "apps/help.h"
#include "apps/text_command.h"
#include "base/limits.h"
#include "formats/unicode.h"

namespace chorus::apps {

namespace {

using formats::JsonValue;

struct GenerateFlags {
  TextFlags text;
  SamplingFlags sampling;
  std::string messages;
  std::vector<std::string> prompts;
  int logprobs = -1;  // how many most probable tokens beside the chosen one; negative: none at all
  bool json = false, stats = false, ignore_end = false;
};

Result<std::string> prompt_text(const std::string& given) {
  std::string text = given;
  if (!text.empty() && text.front() == '@') {
    CHORUS_ASSIGN(text, read_text(text.substr(1), limits::kTextBytesMax));
  }
  if (Status valid = formats::check_utf8(text); !valid) return std::move(valid).error().with_context("reading the prompt");
  return text;
}

JsonValue text_json(const GeneratedText& text, bool logprobs) {
  JsonValue body = JsonValue::object(), tokens = JsonValue::array();
  body.set("text", JsonValue::string(text.text));
  body.set("finish", JsonValue::string(text.finish));
  if (text.finish == "stop") body.set("stop", JsonValue::string(text.stop));
  body.set("prompt_tokens", JsonValue::integer(text.prompt_tokens));
  body.set("answer_tokens", JsonValue::integer(static_cast<int64_t>(text.tokens.size())));
  for (const GeneratedToken& token : text.tokens) {
    if (!logprobs) {
      tokens.push_back(JsonValue::integer(token.id));
      continue;
    }
    JsonValue item = JsonValue::object(), top = JsonValue::array();
    item.set("id", JsonValue::integer(token.id));
    item.set("logprob", JsonValue::floating(token.logprob));
    for (const auto& [id, logprob] : token.top) {
      JsonValue one = JsonValue::object();
      one.set("id", JsonValue::integer(id));
      one.set("logprob", JsonValue::floating(logprob));
      top.push_back(std::move(one));
    }
    item.set("top", std::move(top));
    tokens.push_back(std::move(item));
  }
  body.set("tokens", std::move(tokens));
  return body;
}

void print_logprobs(const TextModel& model, const GeneratedText& text) {
  for (const GeneratedToken& token : text.tokens) {
    const auto shown = [&](uint32_t id) {
      const auto piece = model.decode({id});
      return formats::json_dumps(JsonValue::string(piece.ok() ? *piece : "?"));
    };
    print("%8u %10.4f  %s", token.id, static_cast<double>(token.logprob), shown(token.id).c_str());
    for (const auto& [id, logprob] : token.top) print("  %s %.4f", shown(id).c_str(), static_cast<double>(logprob));
    print("\n");
  }
}

// Several prompts: together in one batch, printed when all are done. One that fails leaves the others.
int generate_many(TextModel& model, const GenerateFlags& flags, const std::vector<std::string>& prompts, const GenerateOptions& options) {
  int code = kExitOk;
  for (const Result<GeneratedText>& text : model.generate_all(prompts, options)) {
    if (!text) {
      code = fail(text.error());
      if (flags.json) print("{\"error\": %s}\n", formats::json_dumps(JsonValue::string(text.error().to_line())).c_str());
    } else if (flags.json) {
      print("%s\n", formats::json_dumps(text_json(*text, options.logprobs)).c_str());
    } else {
      print_whole(text->text + "\n");
      if (options.logprobs) print_logprobs(model, *text);
    }
  }
  return code;
}

Result<GeneratedText> generate_one(TextModel& model, const GenerateFlags& flags, const std::vector<std::string>& prompts,
                                   const GenerateOptions& options) {
  const TextModel::OnText show = flags.json ? TextModel::OnText() : TextModel::OnText(print_now);
  if (!prompts.empty()) return model.generate(prompts[0], options, show);
  CHORUS_ASSIGN(const std::string messages, read_text(flags.messages, limits::kRequestBytesMax));
  auto text = model.chat_json(messages, options, show);
  if (!text) return std::move(text).error().with_context("answering " + (flags.messages == "-" ? "standard input" : flags.messages));
  return text;
}

Result<int> run(const GenerateFlags& flags) {
  std::vector<std::string> prompts;
  for (const std::string& given : flags.prompts) {
    CHORUS_ASSIGN(std::string prompt, prompt_text(given));
    prompts.push_back(std::move(prompt));
  }
  TextModelOptions model_options = text_options(flags.text);
  model_options.profile_kernels = flags.stats;
  CHORUS_ASSIGN(const auto model, TextModel::load(model_options));
  if (flags.stats || flags.text.device.verbose) print_description(model->description());
  GenerateOptions options = flags.sampling.options;
  options.ignore_end_tokens = flags.ignore_end;
  options.logprobs = flags.logprobs >= 0;
  options.top_logprobs = static_cast<uint32_t>(std::max(flags.logprobs, 0));
  int code = kExitOk;
  if (prompts.size() > 1) {
    code = generate_many(*model, flags, prompts, options);
  } else {
    CHORUS_ASSIGN(const GeneratedText text, generate_one(*model, flags, prompts, options));
    if (flags.json) {
      JsonValue body = text_json(text, options.logprobs);
      if (flags.stats) body.set("stats", stats_json(model->stats()));
      print("%s\n", formats::json_dumps(body).c_str());
      return kExitOk;
    }
    print("\n");
    if (options.logprobs) print_logprobs(*model, text);
  }
  if (flags.stats) print_stats(model->stats());
  return code;
}

}  // namespace

Command add_generate(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text, or answer a conversation")->group("Run models");
  add_model_option(*command, flags->text, true);
  auto* prompt = command->add_option("--prompt", flags->prompts, "The text to continue, or @FILE; several are continued together");
  prompt->take_all()->group(kInputGroup);
  command->add_option("--messages", flags->messages, "Instead, a conversation: [{\"role\": ..., \"content\": ...}]; -: standard input")
      ->excludes(prompt)
      ->option_text("FILE")
      ->group(kInputGroup);
  add_device_flags(*command, flags->text.device);
  add_ending_flags(*command, flags->sampling);
  add_json_flag(*command, flags->json);
  command->add_flag("--stats", flags->stats, "Say where the time went, on standard error (measuring slows GPUs a little)")
      ->group(kOutputGroup);
  command->add_option("--logprobs", flags->logprobs, "Log probability of every token, and of the N (0 to 100) most probable ones")
      ->check(CLI::Range(0, 100))
      ->group(kOutputGroup);
  add_sampling_flags(*command, flags->sampling);
  add_sequence_flags(*command, flags->text);
  add_expert_flags(*command, flags->text);
  add_template_option(*command, flags->sampling);
  command->add_flag("--ignore-end", flags->ignore_end, "Go on past the tokens that end an answer")->group(kRareGroup);
  add_rare_flags(*command, flags->text.device);
  return {command, [flags]() -> int {
            if (flags->prompts.empty() && flags->messages.empty()) {
              std::fprintf(stderr, "chorus: generate needs --prompt or --messages\n");
              return kExitUsage;
            }
            auto code = run(*flags);
            return code ? *code : fail(code.error());
          }};
}

}  // namespace chorus::apps
