#include "apps/text_command.h"

#include <algorithm>
#include <cstdio>

#include "apps/help.h"
#include "base/bytes.h"

namespace chorus::apps {

using formats::JsonValue;

void add_model_option(CLI::App& command, TextFlags& flags, bool model_is_option) {
  command.add_option(model_is_option ? "--model" : "model", flags.model, "Model folder (Hugging Face) or packed file")
      ->option_text(model_is_option ? "PATH" : "")
      ->required()
      ->group(kModelGroup);
}

void add_expert_flags(CLI::App& command, TextFlags& flags) {
  add_size_option(command, "--expert-ram", flags.expert_ram, "Memory for experts, such as 4G (default: from what is free)")
      ->group(kMemoryGroup);
  add_size_option(command, "--expert-vram", flags.expert_vram, "Device memory for experts (default: what the device gives)")
      ->group(kMemoryGroup);
  command.add_flag("--no-prefetch", flags.no_prefetch, "Do not read the next layer's likely experts ahead")->group(kMemoryGroup);
}

void add_sequence_flags(CLI::App& command, TextFlags& flags) {
  add_size_option(command, "--sequence-memory", flags.sequence_memory,
                  "Memory for what prompts and answers leave behind, such as 2G (default: from what is free)")
      ->group(kMemoryGroup);
}

TextModelOptions text_options(const TextFlags& flags) {
  const ModelOptions device = model_options(flags.device);
  TextModelOptions options;
  options.model = flags.model;
  options.device = device.device;
  options.adapter = device.adapter;
  options.dtype = device.dtype;
  options.cpu_threads = device.cpu_threads;
  options.fast_toggles = device.fast_toggles;
  options.pipeline_cache = device.pipeline_cache;
  options.expert_ram_bytes = flags.expert_ram;
  options.expert_vram_bytes = flags.expert_vram;
  options.expert_prefetch = !flags.no_prefetch;
  options.sequence_bytes_max = flags.sequence_memory;
  options.progress = device.progress;
  options.log = device.log;
  return options;
}

runtime::LanguageOptions language_options(const TextFlags& flags, bool profile_kernels) {
  runtime::LanguageOptions options;
  options.backend = backend_request(flags.device, profile_kernels);
  options.dtype = dtype_of(flags.device);
  options.experts.expert_ram_bytes = flags.expert_ram;
  options.experts.expert_vram_bytes = flags.expert_vram;
  options.experts.prefetch = !flags.no_prefetch;
  options.log = options.backend.log;
  options.progress = load_progress();
  return options;
}

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  GenerateOptions& options = flags.options;
  const auto number = [&](const char* name, auto& value, const char* description) {
    command.add_option(name, value, description)->group(kSamplingGroup);
  };
  number("--temperature", options.temperature, "0: always the most probable token (default: as the model's files say, else 0)");
  number("--seed", options.seed, "The same seed gives the same text");
  number("--top-k", options.top_k, "Sample from the N most probable tokens only (0: all)");
  number("--top-p", options.top_p, "Sample from the fewest tokens whose probabilities reach this sum");
  number("--min-p", options.min_p, "Sample from tokens with at least this part of the best one's probability");
  number("--repetition-penalty", options.repetition_penalty, "Above 1: tokens that came before become less probable");
  number("--presence-penalty", options.presence_penalty, "Subtracted from logits of tokens of the answer");
  number("--frequency-penalty", options.frequency_penalty, "Subtracted for each time a token came");
}

void add_ending_flags(CLI::App& command, SamplingFlags& flags) {
  command.add_option("--max-tokens", flags.options.tokens_max, "Tokens of the answer, at most (default: what the context holds)")
      ->check(CLI::Range(1u, std::numeric_limits<uint32_t>::max()))
      ->group(kOutputGroup);
  command.add_option("--stop", flags.options.stops, "End before this text; repeatable")->take_all()->group(kOutputGroup);
}

void add_template_option(CLI::App& command, SamplingFlags& flags) {
  command.add_option("--template-variables", flags.options.template_variables, "JSON object of more variables for the chat template")
      ->option_text("JSON")
      ->group(kRareGroup);
}

namespace {

double kernel_seconds(const TextModelStats& stats, std::initializer_list<std::string_view> names) {
  double seconds = 0;
  for (const KernelSeconds& kernel : stats.kernels) {
    const std::string_view operation = std::string_view(kernel.kernel).substr(0, kernel.kernel.find('/'));
    for (const std::string_view name : names) {
      if (operation == name || (operation.starts_with(name) && operation.size() > name.size() && operation[name.size()] == '_')) {
        seconds += kernel.seconds;
        break;
      }
    }
  }
  return seconds;
}

}  // namespace

// Projections count as rest: a matrix product does not say which part of a layer it belongs to.
TimeSplit split_time(const TextModelStats& stats, double seconds) {
  TimeSplit split;
  split.routing = kernel_seconds(stats, {"router"});
  split.expert_reads = stats.expert_read_seconds;
  split.expert_compute = kernel_seconds(stats, {"expert_ffn", "combine_routes"});
  split.attention =
      kernel_seconds(stats, {"attend", "attention", "select_keys", "rope", "qk_norm_rope", "gated_delta", "causal_conv", "head_linear"});
  split.rest = std::max(0.0, seconds - split.routing - split.expert_reads - split.expert_compute - split.attention);
  return split;
}

void print_stats(const TextModelStats& stats) {
  const auto rate = [](uint64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; };
  std::fprintf(stderr, "prompt: %llu tokens in %.3f s (%.1f tokens/s), %llu more reused\n",
               static_cast<unsigned long long>(stats.prompt_tokens), stats.prompt_seconds, rate(stats.prompt_tokens, stats.prompt_seconds),
               static_cast<unsigned long long>(stats.reused_tokens));
  std::fprintf(stderr, "answer: %llu tokens in %.3f s (%.1f tokens/s)\n", static_cast<unsigned long long>(stats.answer_tokens),
               stats.decode_seconds, rate(stats.answer_tokens, stats.decode_seconds));
  const double tokens = static_cast<double>(stats.prompt_tokens + stats.answer_tokens);
  if (!stats.kernels.empty() && tokens > 0) {
    const TimeSplit split = split_time(stats, stats.prompt_seconds + stats.decode_seconds);
    std::fprintf(
        stderr,
        "ms per token (prompt and answer): routing %.3f, expert reads %.3f, expert compute %.3f, attention and state %.3f, rest %.3f\n",
        1e3 * split.routing / tokens, 1e3 * split.expert_reads / tokens, 1e3 * split.expert_compute / tokens,
        1e3 * split.attention / tokens, 1e3 * split.rest / tokens);
  }
  if (stats.experts_resident) {
    std::fprintf(stderr, "experts: all resident\n");
  } else {
    const double uses = static_cast<double>(stats.expert_hits + stats.expert_misses);
    std::fprintf(stderr, "experts: %llu hits, %llu misses (%.1f %% hits), %llu evictions, %s read, %llu of %llu prefetches used\n",
                 static_cast<unsigned long long>(stats.expert_hits), static_cast<unsigned long long>(stats.expert_misses),
                 uses > 0 ? 100 * static_cast<double>(stats.expert_hits) / uses : 0,
                 static_cast<unsigned long long>(stats.expert_evictions), size_text(stats.expert_bytes_read).c_str(),
                 static_cast<unsigned long long>(stats.expert_prefetches_used), static_cast<unsigned long long>(stats.expert_prefetches));
  }
  if (!stats.expert_reads_buffered.empty())
    std::fprintf(stderr, "experts are read through the page cache: %s\n", stats.expert_reads_buffered.c_str());
  const std::string limit = stats.sequence_bytes_max > 0 ? size_text(stats.sequence_bytes_max) : "what the device gives";
  std::fprintf(stderr, "sequences: %s (most: %s), of at most %s\n", size_text(stats.sequence_bytes).c_str(),
               size_text(stats.sequence_bytes_peak).c_str(), limit.c_str());
  std::fprintf(stderr, "memory: %s resident (most: %s), %s on the device (most: %s); %llu dispatches\n",
               size_text(stats.resident_bytes).c_str(), size_text(stats.resident_bytes_peak).c_str(), size_text(stats.device_bytes).c_str(),
               size_text(stats.device_bytes_peak).c_str(), static_cast<unsigned long long>(stats.dispatches));
}

JsonValue stats_json(const TextModelStats& stats) {
  JsonValue body = JsonValue::object();
  const auto count = [&](const char* name, uint64_t value) { body.set(name, JsonValue::integer(static_cast<int64_t>(value))); };
  const auto number = [&](const char* name, double value) { body.set(name, JsonValue::floating(value)); };
  count("prompt_tokens", stats.prompt_tokens);
  count("answer_tokens", stats.answer_tokens);
  count("reused_tokens", stats.reused_tokens);
  number("prompt_seconds", stats.prompt_seconds);
  number("decode_seconds", stats.decode_seconds);
  const double tokens = static_cast<double>(std::max<uint64_t>(1, stats.prompt_tokens + stats.answer_tokens));
  const TimeSplit split = split_time(stats, stats.prompt_seconds + stats.decode_seconds);
  if (!stats.kernels.empty()) {
    number("routing_ms_per_token", 1e3 * split.routing / tokens);
    number("expert_compute_ms_per_token", 1e3 * split.expert_compute / tokens);
    number("attention_ms_per_token", 1e3 * split.attention / tokens);
    number("rest_ms_per_token", 1e3 * split.rest / tokens);
  }
  number("expert_reads_ms_per_token", 1e3 * split.expert_reads / tokens);
  body.set("experts_resident", JsonValue::boolean(stats.experts_resident));
  count("expert_hits", stats.expert_hits);
  count("expert_misses", stats.expert_misses);
  count("expert_evictions", stats.expert_evictions);
  count("expert_bytes_read", stats.expert_bytes_read);
  if (!stats.expert_reads_buffered.empty()) body.set("expert_reads_buffered", JsonValue::string(stats.expert_reads_buffered));
  count("expert_prefetches", stats.expert_prefetches);
  count("expert_prefetches_used", stats.expert_prefetches_used);
  count("sequence_bytes", stats.sequence_bytes);
  count("sequence_bytes_peak", stats.sequence_bytes_peak);
  count("sequence_bytes_max", stats.sequence_bytes_max);
  count("resident_bytes", stats.resident_bytes);
  count("resident_bytes_peak", stats.resident_bytes_peak);
  count("device_bytes", stats.device_bytes);
  count("device_bytes_peak", stats.device_bytes_peak);
  count("dispatches", stats.dispatches);
  return body;
}

void print_description(const TextModelDescription& about) {
  std::fprintf(stderr, "%s (%s) on %s: %s%s, %s weights\nreason: %s\n", about.model.c_str(), about.architecture.c_str(),
               about.backend.c_str(), about.device.c_str(), about.software ? " (software adapter)" : "", about.dtype.c_str(),
               about.choice_reason.c_str());
  if (!about.expert_plan.empty()) std::fprintf(stderr, "experts: %s\n", about.expert_plan.c_str());
  if (!about.ignored_tensors.empty()) {
    std::fprintf(stderr, "not used: %zu tensors (vision, multi-token prediction)\n", about.ignored_tensors.size());
  }
  for (const std::string& fallback : about.fallbacks) std::fprintf(stderr, "fallback: %s\n", fallback.c_str());
}

}  // namespace chorus::apps
