// `chorus verify`: a model against its reference outputs.
#include "verify/verify.h"

#include <cstdio>

#include "apps/command.h"
#include "apps/help.h"

namespace chorus::apps {

namespace {

struct VerifyFlags {
  DeviceFlags device;
  std::string model, base, golden;
  bool json = false;
};

struct Verified {
  verify::Report report;
  compute::BackendInfo device;
  std::vector<compute::Fallback> fallbacks;
};

void print_device(const compute::BackendInfo& device, const std::string& dtype) {
  print("%s on %s%s, %s weights\n", device.kind.c_str(), device.device.c_str(), device.software ? " (software adapter)" : "",
        dtype.c_str());
}

void print_line(const verify::Line& line) {
  print("%-12s logits %.2e  probabilities %.2e  token mismatches %u", line.name.c_str(), line.logit_error, line.probability_error,
        line.token_mismatches);
  if (line.hidden_error > 0) print("  hidden %.2e", line.hidden_error);
  if (line.rounding_edges > 0) print("  rounding edges %u", line.rounding_edges);
  print("  %s%s%s\n", line.pass ? "ok" : "FAILED", line.detail.empty() ? "" : ": ", line.detail.c_str());
}

// As text, each line is printed when it is there: a large model takes minutes.
Result<Verified> verify_checkpoint(const VerifyFlags& flags) {
  std::filesystem::path golden = flags.golden;
  if (golden.empty()) {
    CHORUS_ASSIGN(golden, verify::find_golden(flags.model));
  }
  formats::OpenOptions open;
  if (!flags.base.empty()) open.base = flags.base;
  CHORUS_ASSIGN(const runtime::BackendChoice choice, choose_backend(flags.device));
  Verified result;
  result.device = choice.backend->info();
  const auto show = [&, first = true](const verify::Line& line) mutable {
    if (first) print_device(result.device, flags.device.dtype);
    first = false;
    print_line(line);
  };
  const verify::OnLine on_line = flags.json ? verify::OnLine() : show;
  CHORUS_ASSIGN(result.report, verify::verify_path(*choice.backend, flags.model, open, golden, dtype_of(flags.device), on_line));
  result.fallbacks = choice.backend->fallbacks();
  return result;
}

void print_verdict(const Verified& result) {
  for (const compute::Fallback& fallback : result.fallbacks)
    print("fallback: %s: %s\n", fallback.operation.c_str(), fallback.reason.c_str());
  size_t failed = 0;
  for (const verify::Line& line : result.report.lines) failed += line.pass ? 0 : 1;
  print("verdict: %s (%zu of %zu inside the tolerances)\n", failed == 0 ? "ok" : "FAILED", result.report.lines.size() - failed,
        result.report.lines.size());
}

void print_json(const Verified& result, const std::string& dtype) {
  using formats::JsonValue;
  JsonValue body = JsonValue::object(), lines = JsonValue::array(), fallbacks = JsonValue::array();
  for (const verify::Line& line : result.report.lines) {
    JsonValue item = JsonValue::object();
    item.set("name", JsonValue::string(line.name));
    item.set("logit_error", JsonValue::floating(line.logit_error));
    item.set("probability_error", JsonValue::floating(line.probability_error));
    item.set("hidden_error", JsonValue::floating(line.hidden_error));
    item.set("token_mismatches", JsonValue::integer(line.token_mismatches));
    item.set("rounding_edges", JsonValue::integer(line.rounding_edges));
    item.set("pass", JsonValue::boolean(line.pass));
    item.set("detail", JsonValue::string(line.detail));
    lines.push_back(std::move(item));
  }
  for (const compute::Fallback& fallback : result.fallbacks)
    fallbacks.push_back(JsonValue::string(fallback.operation + ": " + fallback.reason));
  body.set("backend", JsonValue::string(result.device.kind));
  body.set("device", JsonValue::string(result.device.device));
  body.set("dtype", JsonValue::string(dtype));
  body.set("lines", std::move(lines));
  body.set("fallbacks", std::move(fallbacks));
  body.set("pass", JsonValue::boolean(result.report.pass()));
  print("%s\n", formats::json_dumps(body).c_str());
}

int run_verify(const VerifyFlags& flags) {
  auto result = verify_checkpoint(flags);
  if (!result) return fail(result.error());
  if (flags.json) {
    print_json(*result, flags.device.dtype);
  } else {
    print_verdict(*result);
  }
  return result->report.pass() ? kExitOk : kExitVerdict;
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand("verify", "Run a model against its reference outputs")->group("Look into models");
  command->add_option("model", flags->model, "Checkpoint folder or packed file")->required();
  add_base_option(*command, flags->base);
  command->add_option("--golden", flags->golden, "golden.safetensors or *.golden.jsonl (default: the one that lies with the model)")
      ->option_text("FILE")
      ->group(kInputGroup);
  add_device_flags(*command, flags->device);
  add_json_flag(*command, flags->json);
  add_rare_flags(*command, flags->device);
  return {command, [flags] { return run_verify(*flags); }};
}

}  // namespace chorus::apps
