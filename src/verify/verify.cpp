#include "verify/verify.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "experts/expert_system.h"
#include "formats/model_files.h"
#include "models/qwen35.h"
#include "verify/language_runner.h"

namespace chorus::verify {

Tolerances tolerances_for(DType dtype) {
  Tolerances limits;
  if (dtype == DType::f32) return limits;
  limits.logit = HUGE_VAL;
  limits.probability = 0.03;
  limits.hidden = HUGE_VAL;
  limits.margin_tie = HUGE_VAL;  // 16-bit weights are judged by probabilities, not by greedy continuations
  limits.argmax_gap = 0.02;
  limits.answers = false;
  return limits;
}

bool Report::pass() const {
  return !lines.empty() && std::all_of(lines.begin(), lines.end(), [](const Line& line) { return line.pass; });
}

void Report::add(Line line, const OnLine& on_line) {
  lines.push_back(std::move(line));
  if (on_line) on_line(lines.back());
}

Result<std::filesystem::path> find_golden(const std::filesystem::path& model) {
  std::vector<std::filesystem::path> tried = {model / "golden.safetensors"};
  std::filesystem::path plain = model;
  if (!plain.has_filename()) plain = plain.parent_path();
  tried.push_back(plain.string() + ".golden.jsonl");
  tried.push_back(plain / "golden.jsonl");
  std::string names;
  for (const std::filesystem::path& path : tried) {
    std::error_code code;
    if (std::filesystem::is_regular_file(path, code)) return path;
    names += (names.empty() ? "" : ", ") + path.string();
  }
  return make_error(ErrorCode::not_found, "no reference outputs: looked for " + names + " (name one with --golden)");
}

namespace {

bool is_file(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::is_regular_file(path, code);
}

// A decision model is a packed file of that kind, an adapter, or weights with a pointer head beside them.
bool is_decision_model(const std::filesystem::path& model) {
  if (is_file(model)) return !formats::is_model_pack(model);
  for (const char* name : {"adapter_config.json", "head.pt", "head.safetensors"}) {
    if (is_file(model / name)) return true;
  }
  return false;
}

}  // namespace

Result<Report> verify_language_model(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint,
                                     const std::filesystem::path& golden, DType dtype, const OnLine& on_line) {
  experts::ExpertOptions expert_options;
  expert_options.usage_file = std::filesystem::path();  // a comparison is no use of the model to learn from
  CHORUS_ASSIGN(const auto expert_system, experts::open_experts(backend, checkpoint, dtype, expert_options));
  models::LanguageModelOptions options;
  options.dtype = dtype;
  CHORUS_ASSIGN(const auto model,
                models::LanguageModel::load(backend, checkpoint.blueprint, *checkpoint.weights, expert_system->executor(), options));
  const auto runner = make_runner(*model);
  if (golden.extension() != ".jsonl") return verify_logits(*runner, golden, tolerances_for(dtype), on_line);
  if (!checkpoint.files.tokenizer_json) return make_error(ErrorCode::not_found, checkpoint.path.string() + ": no tokenizer.json");
  return verify_generation(*runner, *checkpoint.files.tokenizer_json, golden, dtype, on_line);
}

Result<Report> verify_decision_model(compute::Backend& backend, const formats::Checkpoint& checkpoint, const std::filesystem::path& golden,
                                     DType dtype, const OnLine& on_line) {
  if (golden.extension() == ".jsonl") return verify_decisions(backend, checkpoint, golden, dtype, on_line);
  models::LoadOptions options;
  options.dtype = dtype;
  options.language_head = true;
  CHORUS_ASSIGN(const auto model, models::Qwen35::load(backend, checkpoint.config, *checkpoint.weights, options));
  return verify_logits(*make_runner(*model), golden, tolerances_for(dtype), on_line);
}

Result<Report> verify_path(compute::Backend& backend, const std::filesystem::path& model, const formats::OpenOptions& options,
                           const std::filesystem::path& golden, DType dtype, const OnLine& on_line) {
  if (!is_decision_model(model)) {
    CHORUS_ASSIGN(const models::LanguageCheckpoint checkpoint, models::open_language_checkpoint(model));
    return verify_language_model(backend, checkpoint, golden, dtype, on_line);
  }
  CHORUS_ASSIGN(const formats::Checkpoint checkpoint, formats::open_checkpoint(model, options));
  return verify_decision_model(backend, checkpoint, golden, dtype, on_line);
}

}  // namespace chorus::verify
