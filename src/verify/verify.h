// Runs a model against reference outputs and says how far it is from them. Two layouts:
//   golden.safetensors   language models: promptI.input_ids, .logits (all rows or the last ones), .greedy_ids, .greedy_margin,
//                        prompt0.hidden.K (after the embedding, each layer, the final norm)
//   *.golden.jsonl       decision models: one request a line with token ids, logits, probabilities, answers and token counts;
//                        language models: one prompt a line with its greedy continuation as ids and text
// Written by tools/reference. Must not know: where output goes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/checkpoint.h"
#include "models/language_checkpoint.h"

namespace chorus::verify {

struct Tolerances {
  double logit = 2e-4;  // largest absolute error; infinite: not judged
  double probability = 1e-4;
  double hidden = 2e-4;      // relative to the largest hidden value of that layer
  double margin_tie = 2e-3;  // greedy steps below this reference margin may differ, and what follows them
  double argmax_gap = 0;     // the best option may differ only if the reference's best two are within this
  bool answers = true;       // compare rounded answers and output token counts
};
// f32: 2e-4 and 1e-4. 16-bit weights: probability 0.03, best option equal unless the best two are within 0.02.
Tolerances tolerances_for(DType dtype);

// One prompt or one request.
struct Line {
  std::string name;
  double logit_error = 0;
  double probability_error = 0;
  double hidden_error = 0;        // language models with hidden states only
  uint32_t token_mismatches = 0;  // token ids, read-out positions and counts (decisions); greedy tokens (language models)
  uint32_t rounding_edges = 0;    // answers that differ by one unit of the last decimal
  bool pass = true;
  std::string detail;  // the first thing that failed
};

// Sees each line as soon as it is made.
using OnLine = std::function<void(const Line&)>;

struct Report {
  std::string kind;  // "language" or "decision"
  std::vector<Line> lines;
  bool pass() const;
  void add(Line line, const OnLine& on_line);
};

class LanguageRunner;  // verify/language_runner.h

// Logits, hidden states and greedy continuations of golden.safetensors.
Result<Report> verify_logits(LanguageRunner& runner, const std::filesystem::path& golden, const Tolerances& limits,
                             const OnLine& on_line = {});
// Prompts and greedy continuations of *.golden.jsonl.
Result<Report> verify_generation(LanguageRunner& runner, std::string_view tokenizer_json, const std::filesystem::path& golden, DType dtype,
                                 const OnLine& on_line = {});
Result<Report> verify_decisions(compute::Backend& backend, const formats::Checkpoint& checkpoint, const std::filesystem::path& golden,
                                DType dtype, const OnLine& on_line = {});

// The reference that lies with a model: MODEL/golden.safetensors, MODEL.golden.jsonl or MODEL/golden.jsonl. Errors: not_found.
Result<std::filesystem::path> find_golden(const std::filesystem::path& model);

// A language model, its experts in memory or under a budget from what is free; by the golden file's name, .jsonl is the layout with texts.
Result<Report> verify_language_model(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint,
                                     const std::filesystem::path& golden, DType dtype, const OnLine& on_line = {});
// A decision model (.jsonl), or only its backbone (golden.safetensors).
Result<Report> verify_decision_model(compute::Backend& backend, const formats::Checkpoint& checkpoint, const std::filesystem::path& golden,
                                     DType dtype, const OnLine& on_line = {});
// The front door: what the model is says which of the two.
Result<Report> verify_path(compute::Backend& backend, const std::filesystem::path& model, const formats::OpenOptions& options,
                           const std::filesystem::path& golden, DType dtype, const OnLine& on_line = {});

}  // namespace chorus::verify
