// What `generate`, `chat` and `perplexity` share: options of a language model and of sampling, and how statistics are printed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "apps/command.h"
#include "chorus/generate.h"
#include "runtime/language_side.h"

namespace chorus::apps {

struct TextFlags {
  DeviceFlags device;
  std::string model;
  uint64_t expert_ram = 0, expert_vram = 0, sequence_memory = 0;
  bool no_prefetch = false;
};
void add_model_option(CLI::App& command, TextFlags& flags, bool model_is_option);
void add_expert_flags(CLI::App& command, TextFlags& flags);
// For commands whose requests share the memory for sequences.
void add_sequence_flags(CLI::App& command, TextFlags& flags);
TextModelOptions text_options(const TextFlags& flags);
runtime::LanguageOptions language_options(const TextFlags& flags, bool profile_kernels);

// Options that were not given stay absent, so that the model's own defaults hold.
struct SamplingFlags {
  GenerateOptions options;
  std::string template_variables;
};
void add_sampling_flags(CLI::App& command, SamplingFlags& flags);
void add_ending_flags(CLI::App& command, SamplingFlags& flags);     // when an answer ends
void add_template_option(CLI::App& command, SamplingFlags& flags);  // of the chat template

// Time of one token and where it went; from kernel times where there are some.
struct TimeSplit {
  double routing = 0, expert_reads = 0, expert_compute = 0, attention = 0, rest = 0;  // seconds
};
TimeSplit split_time(const TextModelStats& stats, double seconds);

// On standard error, so that text on standard output stays text.
void print_stats(const TextModelStats& stats);
formats::JsonValue stats_json(const TextModelStats& stats);
void print_description(const TextModelDescription& about);

}  // namespace chorus::apps
