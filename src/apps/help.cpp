#include "apps/help.h"

#include <string_view>

#include "base/bytes.h"

namespace chorus::apps {
namespace {

// "UINT:UINT in [1 - 65536]" -> "N", "TEXT:{auto,webgpu,cpu}" -> "auto|webgpu|cpu". Ranges are said when one is left.
std::string short_type(const std::string& type) {
  const size_t colon = type.find(':');
  const std::string name = type.substr(0, colon);
  if (colon != std::string::npos && type.substr(colon + 1).starts_with('{')) {
    std::string choices = type.substr(colon + 2, type.size() - colon - 3);
    for (char& c : choices) c = c == ',' ? '|' : c;
    return choices;
  }
  return name == "UINT" || name == "INT" ? "N" : name == "FLOAT" ? "NUMBER" : name;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(32);
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND");
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    // One empty line between groups, none at the end.
    for (size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) text.erase(at, 1);
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return " " + option->get_option_text();
    return option->get_type_size() == 0 || option->get_positional() ? "" : " " + short_type(option->get_type_name());
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (option->get_required() && !option->get_positional()) text += " (required)";
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    return text;
  }
};

std::string names_of(const std::vector<const CLI::App*>& commands) {
  std::string names;
  for (const CLI::App* command : commands) names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

void add_help_flag(CLI::App& command) { command.set_help_flag("-h,--help", "Print this help")->group(kRareGroup); }

std::string unknown_word(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* level = &app;
  std::string place;  // "bench: " below it
  for (int i = 1; level->get_require_subcommand_min() > 0; ++i) {
    const auto commands = level->get_subcommands([](const CLI::App*) { return true; });
    const std::string expected = "expected one of " + names_of(commands);
    if (i >= argc) return place + "no command: " + expected;
    const std::string_view word = argv[i];
    if (word.starts_with('-')) return place + quote_text(word) + " where the command stands: " + expected;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : commands) {
      if (command->get_name() == word) next = command;
    }
    if (next == nullptr) return place + "unknown command " + quote_text(word) + ": " + expected;
    place += std::string(word) + ": ";
    level = next;
  }
  const std::vector<std::string> unknown = level->remaining();
  if (unknown.empty()) return {};
  return place + (unknown[0].starts_with('-') ? "unknown option " : "unexpected ") + quote_text(unknown[0]);
}

std::string help_hint(const CLI::App& app) {
  std::string text = app.get_name();
  for (const CLI::App* level = &app;;) {
    const CLI::App* next = nullptr;
    for (const CLI::App* command : level->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->parsed()) next = command;
    }
    if (next == nullptr) return text + " --help";
    text += " " + next->get_name();
    level = next;
  }
}

}  // namespace chorus::apps
