// `chorus bench decide`: prefill, cached evaluation and both, beside what the device can do.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/command.h"
#include "apps/help.h"
#include "base/bytes.h"
#include "engine/decision_engine.h"
#include "models/synthetic.h"

namespace chorus::apps {

namespace {

using formats::JsonValue;

constexpr uint64_t kBranchTokensMax = 1u << 22;  // of all questions together

struct BenchFlags {
  DeviceFlags device;
  std::string geometry, base;  // geometry: a known name, or a checkpoint
  uint32_t state_tokens = 2048, questions = 5, question_tokens = 40, options = 3, repetitions = 10, warmup = 2;
  uint64_t seed = 1;
  bool kernels = false, json = false;
};

// Operations and the fewest bytes that must move, of one pass of `rows` rows over `prefix` cached tokens.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// Linear layers 2mnk; attention 4 * rows * keys * width; delta rule 6 key_dim value_dim per token and head in its recurrent form.
// `last_layer_full` false: the last attention layer makes only keys and values (prefill without outputs).
Work count_work(const formats::TextConfig& c, double rows, double prefix, bool causal, bool last_layer_full, double weight_bytes) {
  Work work;
  const double d = c.hidden_size, queries = static_cast<double>(c.query_heads) * c.head_dim,
               kv = static_cast<double>(c.kv_heads) * c.head_dim;
  const double delta_in = c.conv_channels() + c.value_width() + 2.0 * c.linear_value_heads;
  const double keys = prefix + (causal ? rows / 2 : 0);
  for (size_t i = 0; i < c.layer_types.size(); ++i) {
    const bool attention = c.layer_types[i] == formats::LayerType::full_attention;
    double matrix = 3.0 * d * c.intermediate_size;
    if (attention) {
      if (i + 1 == c.layer_types.size() && !last_layer_full) {
        work.flops += 2 * rows * d * 2 * kv;
        work.bytes += weight_bytes * d * 2 * kv;
        continue;
      }
      matrix += d * (3 * queries + 2 * kv);
      work.flops += 4 * rows * keys * queries;
      work.bytes += 4 * 2 * (prefix + rows) * kv;
    } else {
      matrix += d * (delta_in + c.value_width());
      work.flops += 6 * rows * c.linear_value_heads * c.linear_key_dim * c.linear_value_dim;
      work.bytes += 4.0 * c.linear_value_heads * c.linear_key_dim * c.linear_value_dim;
    }
    work.flops += 2 * rows * matrix;
    work.bytes += weight_bytes * matrix;
  }
  return work;
}

struct Timing {
  std::string name;
  Summary milliseconds;
  double tokens = 0;
  Work work;
};

struct BenchRun {
  compute::BackendInfo device;
  compute::DevicePeak peak;
  engine::MemoryPlan plan;
  std::vector<Timing> timings;
  std::vector<compute::KernelTime> kernels;
  std::vector<compute::Fallback> fallbacks;
  double load_seconds = 0;
  uint64_t device_bytes_peak = 0;
  uint64_t host_bytes_peak = 0;  // resident, of the whole process
  uint32_t pass_rows = 0;
};

struct LoadedBench {
  runtime::BackendChoice choice;
  std::unique_ptr<engine::DecisionEngine> engine;
  formats::TextConfig config;
};

Result<LoadedBench> load_bench(const BenchFlags& flags) {
  LoadedBench bench;
  CHORUS_ASSIGN(bench.choice, choose_backend(flags.device, flags.kernels));
  engine::EngineOptions options;
  options.dtype = dtype_of(flags.device);
  options.plan_tokens = flags.state_tokens;
  options.progress = load_progress();
  options.log = log_to_stderr(flags.device.verbose);
  const auto names = models::geometry_names();
  if (std::find(names.begin(), names.end(), flags.geometry) == names.end() && std::filesystem::exists(flags.geometry)) {
    formats::OpenOptions open;
    if (!flags.base.empty()) open.base = flags.base;
    CHORUS_ASSIGN(const formats::Checkpoint checkpoint, formats::open_checkpoint(flags.geometry, open));
    bench.config = checkpoint.config;
    CHORUS_ASSIGN(bench.engine, engine::DecisionEngine::load(*bench.choice.backend, checkpoint, options));
    return bench;
  }
  CHORUS_ASSIGN(bench.config, models::geometry(flags.geometry));
  const auto weights = models::synthetic_weights(bench.config, flags.seed);
  const formats::PointerHead head = models::synthetic_head(bench.config, flags.seed);
  CHORUS_ASSIGN(bench.engine, engine::DecisionEngine::load(*bench.choice.backend, bench.config, *weights, head, 1.0, options));
  return bench;
}

std::vector<uint32_t> random_tokens(uint32_t count, uint32_t vocabulary, uint64_t& state) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    token = static_cast<uint32_t>((state >> 33) % vocabulary);
  }
  return tokens;
}

std::vector<engine::BranchQuery> random_branches(const BenchFlags& flags, uint32_t vocabulary, uint64_t& state) {
  std::vector<engine::BranchQuery> branches;
  const uint32_t options = std::min(flags.options, flags.question_tokens - 1);
  for (uint32_t q = 0; q < flags.questions; ++q) {
    engine::BranchQuery branch;
    branch.tokens = random_tokens(flags.question_tokens, vocabulary, state);
    branch.decide = flags.question_tokens - 1;
    for (uint32_t o = 0; o < options; ++o) branch.option_ends.push_back(branch.decide - options + o);
    branches.push_back(std::move(branch));
  }
  return branches;
}

uint64_t host_bytes_peak() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

double elapsed_ms(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Result<BenchRun> run_measurements(const BenchFlags& flags) {
  BenchRun run;
  const auto load_start = std::chrono::steady_clock::now();
  CHORUS_ASSIGN(const LoadedBench bench, load_bench(flags));
  const engine::DecisionEngine& engine = *bench.engine;
  CHORUS_TRY(engine.finish());
  run.load_seconds = elapsed_ms(load_start) / 1000;
  run.device = bench.choice.backend->info();
  run.plan = engine.memory_plan();
  run.pass_rows = engine.model().pass_rows_max();

  uint64_t seed = flags.seed;
  const std::vector<uint32_t> state = random_tokens(flags.state_tokens, bench.config.vocab_size, seed);
  const std::vector<engine::BranchQuery> branches = random_branches(flags, bench.config.vocab_size, seed);
  std::vector<double> prefill, cached, both;
  for (uint32_t i = 0; i < flags.warmup + flags.repetitions; ++i) {
    if (i == flags.warmup && flags.kernels) CHORUS_TRY(bench.choice.backend->take_kernel_times());
    double prefill_ms = 0, cached_ms = 0, both_ms = 0;
    auto start = std::chrono::steady_clock::now();
    {
      CHORUS_ASSIGN(const engine::Prefix prefix, engine.prefill(state));
      CHORUS_TRY(engine.finish());
      prefill_ms = elapsed_ms(start);
      start = std::chrono::steady_clock::now();
      CHORUS_TRY(engine.evaluate(prefix, branches));
      cached_ms = elapsed_ms(start);
    }  // one prefix at a time, so that the memory peak is that of one
    start = std::chrono::steady_clock::now();
    {
      CHORUS_ASSIGN(const engine::Prefix prefix, engine.prefill(state));
      CHORUS_TRY(engine.evaluate(prefix, branches));
      both_ms = elapsed_ms(start);
    }
    if (i < flags.warmup) continue;
    prefill.push_back(prefill_ms);
    cached.push_back(cached_ms);
    both.push_back(both_ms);
  }
  if (flags.kernels) {
    CHORUS_ASSIGN(run.kernels, bench.choice.backend->take_kernel_times());
  }
  const double rows = static_cast<double>(flags.questions) * flags.question_tokens;
  const double element = dtype_bytes(dtype_of(flags.device));
  const Work prefill_work = count_work(bench.config, flags.state_tokens, 0, true, false, element);
  const Work cached_work = count_work(bench.config, rows, flags.state_tokens, false, true, element);
  run.timings.push_back({"prefill", summarize(prefill), static_cast<double>(flags.state_tokens), prefill_work});
  run.timings.push_back({"cached evaluation", summarize(cached), rows, cached_work});
  run.timings.push_back({"prefill + evaluation",
                         summarize(both),
                         flags.state_tokens + rows,
                         {prefill_work.flops + cached_work.flops, prefill_work.bytes + cached_work.bytes}});
  run.fallbacks = bench.choice.backend->fallbacks();
  run.device_bytes_peak = bench.choice.backend->bytes_peak();
  run.host_bytes_peak = host_bytes_peak();
  CHORUS_ASSIGN(run.peak, bench.choice.backend->measure_peak());  // last: it takes memory of its own
  return run;
}

void print_text(const BenchFlags& flags, const BenchRun& run) {
  print("bench decide: %s, %s weights, state %u tokens, %u questions x %u tokens, %u repetitions after %u\n", flags.geometry.c_str(),
        flags.device.dtype.c_str(), flags.state_tokens, flags.questions, flags.question_tokens, flags.repetitions, flags.warmup);
  print("%s on %s%s%s%s\n", run.device.kind.c_str(), run.device.device.c_str(), run.device.software ? " (software adapter)" : "",
        run.device.driver.empty() ? "" : ", ", run.device.driver.c_str());
  print("%s\nmost memory: %s on the device, %s resident in the process; loaded in %.1f s; passes of up to %u rows\n",
        run.plan.to_line().c_str(), size_text(run.device_bytes_peak).c_str(), size_text(run.host_bytes_peak).c_str(), run.load_seconds,
        run.pass_rows);
  print("peak measured in this run: %.3f TFLOP/s f32, %s\n\n", run.peak.flops_per_second / 1e12,
        rate_text(run.peak.bytes_per_second).c_str());
  print("%-22s %10s %21s %12s %10s %7s %9s %7s\n", "", "median ms", "low - high", "tokens/s", "TFLOP/s", "of peak", "GiB/s", "of peak");
  for (const Timing& timing : run.timings) {
    const double seconds = timing.milliseconds.median / 1000;
    const double flops = timing.work.flops / seconds, bytes = timing.work.bytes / seconds;
    print("%-22s %10.3f %10.3f -%9.3f %12.1f %10.3f %6.1f%% %9.1f %6.1f%%\n", timing.name.c_str(), timing.milliseconds.median,
          timing.milliseconds.low, timing.milliseconds.high, timing.tokens / seconds, flops / 1e12, 100 * flops / run.peak.flops_per_second,
          bytes / (1u << 30), 100 * bytes / run.peak.bytes_per_second);
  }
  if (!run.kernels.empty()) {
    double total = 0;
    for (const compute::KernelTime& kernel : run.kernels) total += kernel.milliseconds;
    const double rounds = flags.repetitions;
    print("\nkernels, per repetition (a repetition is two prefills and two evaluations): %.3f ms\n", total / rounds);
    for (const compute::KernelTime& kernel : run.kernels) {
      print("    %-40s %8.1f calls %10.3f ms %5.1f%%\n", kernel.kernel.c_str(), kernel.calls / rounds, kernel.milliseconds / rounds,
            100 * kernel.milliseconds / total);
    }
  }
  for (const compute::Fallback& fallback : run.fallbacks) print("fallback: %s: %s\n", fallback.operation.c_str(), fallback.reason.c_str());
}

void print_json(const BenchFlags& flags, const BenchRun& run) {
  JsonValue body = JsonValue::object(), timings = JsonValue::array(), kernels = JsonValue::array(), fallbacks = JsonValue::array();
  auto text = [](const std::string& value) { return JsonValue::string(value); };
  body.set("model", text(flags.geometry));
  body.set("dtype", text(flags.device.dtype));
  body.set("backend", text(run.device.kind));
  body.set("device", text(run.device.device));
  body.set("driver", text(run.device.driver));
  body.set("state_tokens", JsonValue::integer(flags.state_tokens));
  body.set("questions", JsonValue::integer(flags.questions));
  body.set("question_tokens", JsonValue::integer(flags.question_tokens));
  body.set("peak_tflops", JsonValue::floating(run.peak.flops_per_second / 1e12));
  body.set("peak_gbytes_per_second", JsonValue::floating(run.peak.bytes_per_second / 1e9));
  body.set("device_bytes_peak", JsonValue::integer(static_cast<int64_t>(run.device_bytes_peak)));
  body.set("host_bytes_peak", JsonValue::integer(static_cast<int64_t>(run.host_bytes_peak)));
  for (const Timing& timing : run.timings) {
    JsonValue item = JsonValue::object();
    item.set("name", text(timing.name));
    item.set("median_ms", JsonValue::floating(timing.milliseconds.median));
    item.set("low_ms", JsonValue::floating(timing.milliseconds.low));
    item.set("high_ms", JsonValue::floating(timing.milliseconds.high));
    item.set("tflops", JsonValue::floating(timing.work.flops / timing.milliseconds.median / 1e9));
    item.set("gbytes_per_second", JsonValue::floating(timing.work.bytes / timing.milliseconds.median / 1e6));
    timings.push_back(std::move(item));
  }
  for (const compute::KernelTime& kernel : run.kernels) {
    JsonValue item = JsonValue::object();
    item.set("kernel", text(kernel.kernel));
    item.set("calls", JsonValue::integer(kernel.calls));
    item.set("milliseconds", JsonValue::floating(kernel.milliseconds));
    kernels.push_back(std::move(item));
  }
  for (const compute::Fallback& fallback : run.fallbacks) fallbacks.push_back(text(fallback.operation + ": " + fallback.reason));
  body.set("timings", std::move(timings));
  body.set("kernels", std::move(kernels));
  body.set("fallbacks", std::move(fallbacks));
  print("%s\n", formats::json_dumps(body).c_str());
}

int run_bench(const BenchFlags& flags) {
  if (uint64_t{flags.questions} * flags.question_tokens > kBranchTokensMax) {
    return fail(make_error(ErrorCode::limit_exceeded, "--questions " + std::to_string(flags.questions) + " --question-tokens " +
                                                          std::to_string(flags.question_tokens) + ": expected at most " +
                                                          std::to_string(kBranchTokensMax) + " tokens in all"));
  }
  auto run = run_measurements(flags);
  if (!run) return fail(run.error());
  if (flags.json) {
    print_json(flags, *run);
  } else {
    print_text(flags, *run);
  }
  return kExitOk;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed")->group("This machine");
  bench->require_subcommand(1);
  const std::vector<Command> halves = {add_bench_decide(*bench), add_bench_generate(*bench)};
  for (const Command& half : halves) half.app->group("Commands");
  bench->set_help_flag("-h,--help", "Print this help; after a command, its options")->group("Options");
  return {bench, [halves]() -> int {
            for (const Command& half : halves) {
              if (half.app->parsed()) return half.run();
            }
            return kExitUsage;
          }};
}

Command add_bench_decide(CLI::App& bench) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = bench.add_subcommand("decide", "Prefill, cached evaluation and both, of a decision model");
  const auto number = [&](const char* name, auto& value, const char* description, uint32_t low, uint32_t high) {
    command->add_option(name, value, description)->check(CLI::Range(low, high))->capture_default_str()->group("Work");
  };
  command->add_option("--geometry", flags->geometry, "kev-0.8b, kev-4b, kev-9b or kev-27b (seeded random weights), or a checkpoint")
      ->option_text("NAME")
      ->required()
      ->group(kModelGroup);
  add_base_option(*command, flags->base);
  number("--state-tokens", flags->state_tokens, "Length of the state", 1, 1u << 20);
  number("--questions", flags->questions, "Number of questions", 1, 65536);
  number("--question-tokens", flags->question_tokens, "Length of each question", 2, 65536);
  number("--options", flags->options, "Options of each question", 1, 255);
  number("--repetitions", flags->repetitions, "Measured repetitions", 1, 10000);
  number("--warmup", flags->warmup, "Repetitions before measuring", 0, 1000);
  add_device_flags(*command, flags->device);
  command->add_flag("--kernels", flags->kernels, "GPU time of each kernel (timestamps slow the run a little)")->group(kOutputGroup);
  add_json_flag(*command, flags->json);
  command->add_option("--seed", flags->seed, "Seed of weights and tokens")->capture_default_str()->group(kRareGroup);
  add_rare_flags(*command, flags->device);
  return {command, [flags] { return run_bench(*flags); }};
}

}  // namespace chorus::apps
