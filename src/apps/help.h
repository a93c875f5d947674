// How --help looks: options in named groups, the important ones first, without what only a parser needs to know.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace chorus::apps {

// Groups stand in the order in which a command adds their first option.
inline constexpr const char* kModelGroup = "Model";
inline constexpr const char* kInputGroup = "Input";
inline constexpr const char* kDeviceGroup = "Device";
inline constexpr const char* kOutputGroup = "Output";
inline constexpr const char* kSamplingGroup = "Choice of tokens";
inline constexpr const char* kMemoryGroup = "Memory";
inline constexpr const char* kRareGroup = "Rarely needed";

// For the program, before its commands are added: they take it over.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// --help itself, as the last option.
void add_help_flag(CLI::App& command);

// What no command knows: a command's name that is missing or unknown, with those that there are, or an option. Empty: nothing of that kind.
std::string unknown_word(const CLI::App& app, int argc, const char* const* argv);

// "chorus bench decide --help": of the command that the line names.
std::string help_hint(const CLI::App& app);

}  // namespace chorus::apps
