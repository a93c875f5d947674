// `chorus chat`: a conversation in the terminal, or from a pipe (one line a turn).
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "apps/help.h"
#include "apps/text_command.h"
#include "base/limits.h"
#include "formats/unicode.h"

namespace chorus::apps {

namespace {

struct ChatFlags {
  TextFlags text;
  SamplingFlags sampling;
  std::string system;
  bool stats = false;
};

class Conversation {
 public:
  Conversation(TextModel& model, const ChatFlags& flags) : model_(model), flags_(flags) { reset(); }

  // False ends the conversation.
  bool take(const std::string& line) {
    if (line == "/exit" || line == "/quit") return false;
    if (line.empty()) return true;
    if (line == "/reset") {
      reset();
      std::fprintf(stderr, "(a new conversation)\n");
    } else if (line == "/stats") {
      print_stats(model_.stats());
    } else if (line == "/help") {
      std::fprintf(stderr, "/reset: begin anew; /stats: where the time went; /exit: end\n");
    } else if (line.front() == '/') {
      std::fprintf(stderr, "chorus: unknown command %s (known: /reset, /stats, /help, /exit)\n",
                   formats::json_dumps(formats::JsonValue::string(line)).c_str());
      code_ = kExitInput;
    } else {
      answer(line);
    }
    return !over_;
  }

  int code() const { return code_; }

 private:
  void reset() {
    messages_.clear();
    if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
  }

  // A turn that fails is taken back, and the conversation goes on.
  void answer(const std::string& line) {
    messages_.push_back({"user", line});
    bool began = false;
    const auto show = [&](std::string_view piece) {
      began = true;
      return print_now(piece);
    };
    auto text = model_.chat(messages_, flags_.sampling.options, show);
    if (text || began) print_now("\n");  // an error begins no line of its own unless text stands before it
    if (!text) {
      messages_.pop_back();
      code_ = fail(text.error());
      return;
    }
    over_ = text->finish == "caller";  // nobody reads what is printed
    messages_.push_back({"assistant", text->text});
  }

  TextModel& model_;
  const ChatFlags& flags_;
  std::vector<ChatMessage> messages_;
  int code_ = kExitOk;
  bool over_ = false;
};

// One line, at most `bytes_max` bytes; nothing at the end of the input.
std::optional<std::string> read_line(uint64_t bytes_max, bool& too_long) {
  std::string line;
  too_long = false;
  int c = 0;
  while ((c = std::cin.get()) != EOF && c != '\n') {
    if (line.size() < bytes_max) {
      line += static_cast<char>(c);
    } else {
      too_long = true;
    }
  }
  if (c == EOF && line.empty()) return std::nullopt;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

Result<int> run(const ChatFlags& flags) {
  if (Status valid = formats::check_utf8(flags.system); !valid) return std::move(valid).error().with_context("reading --system");
  TextModelOptions options = text_options(flags.text);
  options.keep_conversation = true;
  options.profile_kernels = flags.stats;
  CHORUS_ASSIGN(const auto model, TextModel::load(options));
  const TextModelDescription about = model->description();
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal || flags.stats || flags.text.device.verbose) print_description(about);
  if (terminal) std::fprintf(stderr, "/help lists commands\n");
  Conversation conversation(*model, flags);
  int line_code = kExitOk;
  while (true) {
    if (terminal) std::fprintf(stderr, "> ");
    bool too_long = false;
    const auto line = read_line(limits::kTextBytesMax, too_long);
    if (!line) break;
    Status valid = too_long ? Status(make_error(ErrorCode::limit_exceeded, "standard input: a line is longer than " +
                                                                               std::to_string(limits::kTextBytesMax) + " bytes"))
                            : formats::check_utf8(*line);
    if (!valid) {
      line_code = fail(std::move(valid).error().with_context("reading a line"));
      continue;
    }
    if (!conversation.take(*line)) break;
  }
  if (flags.stats) print_stats(model->stats());
  return conversation.code() != kExitOk ? conversation.code() : line_code;
}

}  // namespace

Command add_chat(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a language model (/reset, /stats, /exit)")->group("Run models");
  add_model_option(*command, flags->text, true);
  command->add_option("--system", flags->system, "What the model is told before the conversation")->group(kInputGroup);
  add_device_flags(*command, flags->text.device);
  add_ending_flags(*command, flags->sampling);
  command->add_flag("--stats", flags->stats, "Measure kernels, so that /stats says where the time went")->group(kOutputGroup);
  add_sampling_flags(*command, flags->sampling);
  add_sequence_flags(*command, flags->text);
  add_expert_flags(*command, flags->text);
  add_template_option(*command, flags->sampling);
  add_rare_flags(*command, flags->text.device);
  return {command, [flags]() -> int {
            auto code = run(*flags);
            return code ? *code : fail(code.error());
          }};
}

}  // namespace chorus::apps
