// `chorus bench generate`: reading a prompt and writing an answer, beside what the device's memory can do.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "apps/help.h"
#include "apps/text_command.h"
#include "base/bytes.h"
#include "experts/resident_experts.h"
#include "generation/sampling.h"
#include "models/blueprint_tensors.h"
#include "models/families/read_blueprint.h"
#include "models/synthetic_language.h"

namespace chorus::apps {

namespace {

using formats::JsonValue;

struct GenerateBenchFlags {
  TextFlags text;
  uint32_t prompt_tokens = 512, new_tokens = 64, batch = 1, chunk = 2048, repetitions = 5, warmup = 1;
  uint64_t seed = 1;
  bool kernels = false, json = false;
};

// The model under measurement and what keeps it alive.
struct LoadedLanguageBench {
  std::unique_ptr<models::LanguageCheckpoint> checkpoint;  // null for a geometry
  std::unique_ptr<models::Blueprint> blueprint;            // of a geometry
  std::unique_ptr<formats::WeightSource> weights;
  runtime::BackendChoice choice;
  std::unique_ptr<experts::ResidentExperts> resident;
  std::unique_ptr<runtime::LanguageSide> side;
  std::unique_ptr<models::LanguageModel> own;

  models::LanguageModel& model() const { return side ? *side->model : *own; }
  compute::Backend& backend() const { return model().backend(); }
};

Result<LoadedLanguageBench> load_geometry(const GenerateBenchFlags& flags) {
  LoadedLanguageBench bench;
  CHORUS_ASSIGN(const std::string config, models::language_geometry_config(flags.text.model));
  if (flags.text.expert_ram > 0 || flags.text.expert_vram > 0) {
    return make_error(
        ErrorCode::unsupported,
        "--expert-ram and --expert-vram read experts from disk: expected a model's folder or packed file, found the geometry " +
            flags.text.model);
  }
  CHORUS_ASSIGN(models::Blueprint blueprint, models::read_blueprint(config));
  bench.blueprint = std::make_unique<models::Blueprint>(std::move(blueprint));
  const DType dtype = dtype_of(flags.text.device);
  CHORUS_ASSIGN(bench.choice, choose_backend(flags.text.device, flags.kernels));
  const models::SyntheticExperts numbers(*bench.blueprint, dtype, flags.seed);
  CHORUS_ASSIGN(bench.resident,
                experts::ResidentExperts::load(
                    *bench.choice.backend, *bench.blueprint, dtype,
                    [&](uint32_t layer, uint32_t expert, std::span<std::byte> record) { return numbers.fill(layer, expert, record); },
                    load_progress()));
  bench.weights = models::synthetic_language_weights(*bench.blueprint, flags.seed);
  models::LanguageModelOptions options;
  options.dtype = dtype;
  options.progress = load_progress();
  CHORUS_ASSIGN(bench.own,
                models::LanguageModel::load(*bench.choice.backend, *bench.blueprint, *bench.weights, bench.resident.get(), options));
  return bench;
}

Result<LoadedLanguageBench> load_bench(const GenerateBenchFlags& flags) {
  const auto names = models::language_geometry_names();
  if (std::find(names.begin(), names.end(), flags.text.model) != names.end() || !std::filesystem::exists(flags.text.model))
    return load_geometry(flags);
  LoadedLanguageBench bench;
  CHORUS_ASSIGN(models::LanguageCheckpoint checkpoint, models::open_language_checkpoint(flags.text.model));
  bench.checkpoint = std::make_unique<models::LanguageCheckpoint>(std::move(checkpoint));
  CHORUS_ASSIGN(bench.side, runtime::load_language_side(*bench.checkpoint, language_options(flags.text, flags.kernels)));
  return bench;
}

// Bytes of weights that one step of `batch` tokens must read: every resident tensor but the embedding table, and the experts of its routes
// (of several tokens: as many different ones as evenly spread routes would name).
struct WeightBytes {
  double resident = 0, experts = 0;
  double all() const { return resident + experts; }
};

WeightBytes weight_bytes(const models::Blueprint& blueprint, DType dtype, uint32_t batch) {
  WeightBytes bytes;
  for (const models::NamedShape& tensor : models::resident_tensors(blueprint)) {
    if (tensor.name == blueprint.embedding && blueprint.embedding != blueprint.language_head) continue;
    double elements = 1;
    for (const uint64_t extent : tensor.shape) elements *= static_cast<double>(extent);
    bytes.resident += elements * (tensor.shape.size() > 1 ? dtype_bytes(dtype) : 4);
  }
  for (const models::LayerSpec& layer : blueprint.layers) {
    const auto* moe = std::get_if<models::MoeSpec>(&layer.feed_forward);
    if (moe == nullptr) continue;
    const double all = moe->experts;
    const double used = all * (1 - std::pow(1 - moe->top_k / all, batch));
    const compute::ExpertRecord record({blueprint.hidden, moe->inner, dtype, !moe->tensors.gate_up_bias.empty()});
    bytes.experts += used * static_cast<double>(record.bytes);
  }
  return bytes;
}

std::vector<uint32_t> random_prompt(uint32_t count, uint32_t vocabulary, uint64_t& state) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    token = static_cast<uint32_t>((state >> 33) % vocabulary);
  }
  return tokens;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

struct GenerateBenchRun {
  compute::BackendInfo device;
  compute::DevicePeak peak;
  std::string reason, experts;
  std::vector<double> prefill_ms, step_ms;  // a sequence's prompt; one step of all sequences
  double dispatches_per_step = 0, dispatches_per_prompt = 0;
  WeightBytes bytes;
  std::vector<compute::KernelTime> decode_kernels;
  std::vector<compute::Fallback> fallbacks;
  experts::ExpertStatistics expert_statistics;
  double load_seconds = 0;
  uint64_t device_bytes_peak = 0, host_bytes_peak = 0;
  uint32_t vocabulary = 0;
};

// One repetition: every sequence reads its prompt, then all write together, greedily.
class Repetition {
 public:
  Repetition(const GenerateBenchFlags& flags, models::LanguageModel& model) : flags_(flags), model_(model), chooser_(model.backend()) {}

  Status run(uint64_t& seed, GenerateBenchRun* run) {
    std::vector<std::unique_ptr<models::Sequence>> sequences;
    std::vector<uint32_t> last(flags_.batch);
    const uint32_t vocabulary = model_.blueprint().vocabulary;
    for (uint32_t i = 0; i < flags_.batch; ++i) {
      CHORUS_ASSIGN(auto sequence, model_.new_sequence(flags_.prompt_tokens + flags_.new_tokens));
      const std::vector<uint32_t> prompt = random_prompt(flags_.prompt_tokens, vocabulary, seed);
      const uint64_t before = model_.backend().dispatches();
      const auto start = std::chrono::steady_clock::now();
      for (size_t at = 0; at < prompt.size(); at += flags_.chunk) {
        const auto tokens = std::span(prompt).subspan(at, std::min<size_t>(flags_.chunk, prompt.size() - at));
        const models::SequenceStep step{sequence.get(), tokens};
        CHORUS_ASSIGN(const models::Logits logits, model_.forward(std::span(&step, 1), models::OutputRows::last));
        CHORUS_TRY(choose(logits, std::span(&last[i], 1)));
      }
      if (run) {
        run->prefill_ms.push_back(milliseconds_since(start));
        run->dispatches_per_prompt = static_cast<double>(model_.backend().dispatches() - before);
      }
      sequences.push_back(std::move(sequence));
    }
    if (run && flags_.kernels) CHORUS_TRY(model_.backend().take_kernel_times());
    const uint64_t before = model_.backend().dispatches();
    for (uint32_t n = 0; n < flags_.new_tokens; ++n) {
      const auto start = std::chrono::steady_clock::now();
      std::vector<models::SequenceStep> steps;
      for (uint32_t i = 0; i < flags_.batch; ++i) steps.push_back({sequences[i].get(), std::span(&last[i], 1)});
      CHORUS_ASSIGN(const models::Logits logits, model_.forward(steps, models::OutputRows::last));
      CHORUS_TRY(choose(logits, last));
      if (run) run->step_ms.push_back(milliseconds_since(start));
    }
    if (!run) return {};
    run->dispatches_per_step = static_cast<double>(model_.backend().dispatches() - before) / flags_.new_tokens;
    if (!flags_.kernels) return {};
    CHORUS_ASSIGN(const auto times, model_.backend().take_kernel_times());
    for (const compute::KernelTime& time : times) {
      const auto same = std::find_if(run->decode_kernels.begin(), run->decode_kernels.end(),
                                     [&](const auto& other) { return other.kernel == time.kernel; });
      if (same == run->decode_kernels.end()) {
        run->decode_kernels.push_back(time);
      } else {
        same->calls += time.calls;
        same->milliseconds += time.milliseconds;
      }
    }
    return {};
  }

 private:
  Status choose(const models::Logits& logits, std::span<uint32_t> tokens) {
    const generation::SamplingOptions greedy;
    const generation::TokenHistory history;
    const std::vector<generation::RowChoice> rows(tokens.size(), generation::RowChoice{&greedy, 0, &history});
    CHORUS_ASSIGN(auto choices, chooser_.choose(logits, model_.blueprint().vocabulary, rows));
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!choices[i]) return choices[i].error();
      tokens[i] = choices[i]->token;
    }
    return {};
  }

  const GenerateBenchFlags& flags_;
  models::LanguageModel& model_;
  generation::TokenChooser chooser_;
};

Result<GenerateBenchRun> measure(const GenerateBenchFlags& flags) {
  GenerateBenchRun run;
  const auto load_start = std::chrono::steady_clock::now();
  CHORUS_ASSIGN(const LoadedLanguageBench bench, load_bench(flags));
  models::LanguageModel& model = bench.model();
  run.load_seconds = milliseconds_since(load_start) / 1000;
  run.device = bench.backend().info();
  run.experts = bench.side ? bench.side->experts->plan() : "all resident";
  run.bytes = weight_bytes(model.blueprint(), dtype_of(flags.text.device), flags.batch);
  run.vocabulary = model.blueprint().vocabulary;
  uint64_t seed = flags.seed;
  Repetition repetition(flags, model);
  for (uint32_t i = 0; i < flags.warmup; ++i) CHORUS_TRY(repetition.run(seed, nullptr));
  for (uint32_t i = 0; i < flags.repetitions; ++i) CHORUS_TRY(repetition.run(seed, &run));
  if (bench.side) run.expert_statistics = bench.side->experts->statistics();
  run.fallbacks = bench.backend().fallbacks();
  run.device_bytes_peak = bench.backend().bytes_peak();
  run.host_bytes_peak = runtime::process_memory().peak;
  CHORUS_ASSIGN(run.peak, bench.backend().measure_peak());  // last: it takes memory of its own
  return run;
}

struct Rates {
  Summary prefill, step;                                         // milliseconds
  double prefill_tokens = 0, decode_tokens = 0;                  // per second, of the medians
  double bytes_per_second = 0, of_copy = 0, not_reading_ms = 0;  // weights
};

Rates rates_of(const GenerateBenchFlags& flags, const GenerateBenchRun& run) {
  Rates rates;
  rates.prefill = summarize(run.prefill_ms);
  rates.step = summarize(run.step_ms);
  rates.prefill_tokens = 1e3 * flags.prompt_tokens / rates.prefill.median;
  rates.decode_tokens = 1e3 * flags.batch / rates.step.median;
  rates.bytes_per_second = run.bytes.all() / (rates.step.median / 1e3);
  rates.of_copy = rates.bytes_per_second / run.peak.bytes_per_second;
  rates.not_reading_ms = rates.step.median - 1e3 * run.bytes.all() / run.peak.bytes_per_second;
  return rates;
}

void print_text(const GenerateBenchFlags& flags, const GenerateBenchRun& run) {
  const Rates rates = rates_of(flags, run);
  const auto bytes_text = [](double bytes) { return size_text(static_cast<uint64_t>(bytes)); };
  print("bench generate: %s, %s weights, batch %u, prompts of %u tokens, %u new tokens, %u repetitions after %u\n",
        flags.text.model.c_str(), flags.text.device.dtype.c_str(), flags.batch, flags.prompt_tokens, flags.new_tokens, flags.repetitions,
        flags.warmup);
  print("%s on %s%s%s%s\n", run.device.kind.c_str(), run.device.device.c_str(), run.device.software ? " (software adapter)" : "",
        run.device.driver.empty() ? "" : ", ", run.device.driver.c_str());
  print("experts: %s\nmost memory: %s on the device, %s resident in the process; loaded in %.1f s\n", run.experts.c_str(),
        size_text(run.device_bytes_peak).c_str(), size_text(run.host_bytes_peak).c_str(), run.load_seconds);
  print("copy rate measured in this run: %s\n\n", rate_text(run.peak.bytes_per_second).c_str());
  print("%-10s %12s %23s %12s %12s\n", "", "median ms", "low - high", "tokens/s", "dispatches");
  print("%-10s %12.3f %11.3f -%10.3f %12.1f %12.1f\n", "prefill", rates.prefill.median, rates.prefill.low, rates.prefill.high,
        rates.prefill_tokens, run.dispatches_per_prompt);
  print("%-10s %12.3f %11.3f -%10.3f %12.1f %12.1f\n\n", "step", rates.step.median, rates.step.low, rates.step.high, rates.decode_tokens,
        run.dispatches_per_step);
  print("weights read a step: %s (%s resident, %s experts): %s, %.1f %% of the copy rate; %.3f ms a step not spent reading weights\n",
        bytes_text(run.bytes.all()).c_str(), bytes_text(run.bytes.resident).c_str(), bytes_text(run.bytes.experts).c_str(),
        rate_text(rates.bytes_per_second).c_str(), 100 * rates.of_copy, rates.not_reading_ms);
  const experts::ExpertStatistics& experts = run.expert_statistics;
  if (!experts.resident) {
    print("experts, all repetitions: %llu hits, %llu misses, %s read, waited %.3f s for reads\n",
          static_cast<unsigned long long>(experts.cache.hits), static_cast<unsigned long long>(experts.cache.misses),
          size_text(experts.cache.bytes_read).c_str(), experts.times.reads);
  }
  if (!run.decode_kernels.empty()) {
    double total = 0;
    for (const compute::KernelTime& kernel : run.decode_kernels) total += kernel.milliseconds;
    const double steps = static_cast<double>(run.step_ms.size());
    print("\nkernels of a step: %.3f ms\n", total / steps);
    for (const compute::KernelTime& kernel : run.decode_kernels) {
      print("    %-40s %8.1f calls %10.4f ms %5.1f%%\n", kernel.kernel.c_str(), kernel.calls / steps, kernel.milliseconds / steps,
            100 * kernel.milliseconds / total);
    }
  }
  for (const compute::Fallback& fallback : run.fallbacks) print("fallback: %s: %s\n", fallback.operation.c_str(), fallback.reason.c_str());
}

void print_json(const GenerateBenchFlags& flags, const GenerateBenchRun& run) {
  const Rates rates = rates_of(flags, run);
  JsonValue body = JsonValue::object(), kernels = JsonValue::array(), fallbacks = JsonValue::array();
  const auto text = [&](const char* name, const std::string& value) { body.set(name, JsonValue::string(value)); };
  const auto number = [&](const char* name, double value) { body.set(name, JsonValue::floating(std::isfinite(value) ? value : 0)); };
  const auto count = [&](const char* name, uint64_t value) { body.set(name, JsonValue::integer(static_cast<int64_t>(value))); };
  text("model", flags.text.model);
  text("dtype", flags.text.device.dtype);
  text("backend", run.device.kind);
  text("device", run.device.device);
  text("driver", run.device.driver);
  count("batch", flags.batch);
  count("prompt_tokens", flags.prompt_tokens);
  count("new_tokens", flags.new_tokens);
  number("copy_gbytes_per_second", run.peak.bytes_per_second / 1e9);
  number("prefill_median_ms", rates.prefill.median);
  number("prefill_low_ms", rates.prefill.low);
  number("prefill_high_ms", rates.prefill.high);
  number("prefill_tokens_per_second", rates.prefill_tokens);
  number("step_median_ms", rates.step.median);
  number("step_low_ms", rates.step.low);
  number("step_high_ms", rates.step.high);
  number("decode_tokens_per_second", rates.decode_tokens);
  number("weight_gbytes_per_step", run.bytes.all() / 1e9);
  number("weight_gbytes_per_second", rates.bytes_per_second / 1e9);
  number("fraction_of_copy_rate", rates.of_copy);
  number("not_reading_weights_ms", rates.not_reading_ms);
  number("dispatches_per_step", run.dispatches_per_step);
  count("expert_hits", run.expert_statistics.cache.hits);
  count("expert_misses", run.expert_statistics.cache.misses);
  count("expert_bytes_read", run.expert_statistics.cache.bytes_read);
  count("device_bytes_peak", run.device_bytes_peak);
  count("host_bytes_peak", run.host_bytes_peak);
  for (const compute::KernelTime& kernel : run.decode_kernels) {
    JsonValue item = JsonValue::object();
    item.set("kernel", JsonValue::string(kernel.kernel));
    item.set("calls", JsonValue::integer(kernel.calls));
    item.set("milliseconds", JsonValue::floating(kernel.milliseconds));
    kernels.push_back(std::move(item));
  }
  for (const compute::Fallback& fallback : run.fallbacks)
    fallbacks.push_back(JsonValue::string(fallback.operation + ": " + fallback.reason));
  body.set("kernels", std::move(kernels));
  body.set("fallbacks", std::move(fallbacks));
  print("%s\n", formats::json_dumps(body).c_str());
}

}  // namespace

Command add_bench_generate(CLI::App& bench) {
  auto flags = std::make_shared<GenerateBenchFlags>();
  CLI::App* command = bench.add_subcommand("generate", "Prefill and decode of a language model");
  std::string names;
  for (const std::string_view name : models::language_geometry_names()) names += std::string(name) + ", ";
  const auto number = [&](const char* name, uint32_t& value, const char* description, uint32_t low, uint32_t high) {
    command->add_option(name, value, description)->check(CLI::Range(low, high))->capture_default_str()->group("Work");
  };
  command->add_option("--geometry", flags->text.model, names + "each with seeded random weights, or a model's folder or packed file")
      ->option_text("NAME")
      ->required()
      ->group(kModelGroup);
  number("--prompt-tokens", flags->prompt_tokens, "Length of each prompt", 1, 1u << 20);
  number("--new-tokens", flags->new_tokens, "Tokens written after it", 1, 1u << 20);
  number("--batch", flags->batch, "Sequences that write together", 1, 1024);
  number("--chunk", flags->chunk, "Tokens of a prompt read in one call", 1, 1u << 20);
  number("--repetitions", flags->repetitions, "Measured repetitions", 1, 10000);
  number("--warmup", flags->warmup, "Repetitions before measuring", 0, 1000);
  add_device_flags(*command, flags->text.device);
  command->add_flag("--kernels", flags->kernels, "Time of each kernel of a step (timestamps slow the run)")->group(kOutputGroup);
  add_json_flag(*command, flags->json);
  add_expert_flags(*command, flags->text);
  command->add_option("--seed", flags->seed, "Seed of weights and tokens")->capture_default_str()->group(kRareGroup);
  add_rare_flags(*command, flags->text.device);
  return {command, [flags]() -> int {
            auto run = measure(*flags);
            if (!run) return fail(run.error());
            if (flags->json) {
              print_json(*flags, *run);
            } else {
              print_text(*flags, *run);
            }
            return kExitOk;
          }};
}

}  // namespace chorus::apps
