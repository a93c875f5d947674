#include "verify/verify.h"

#include <algorithm>
#include <cmath>

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

Result<Report> verify_model(compute::Backend& backend, const formats::Checkpoint& checkpoint, const std::filesystem::path& golden,
                            DType dtype) {
  if (golden.extension() == ".jsonl") return verify_decisions(backend, checkpoint, golden, dtype);
  return verify_language_model(backend, checkpoint, golden, dtype);
}

}  // namespace chorus::verify
