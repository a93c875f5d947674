// Language models against golden.safetensors: logits, hidden states, greedy continuations.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/bytes.h"
#include "formats/safetensors.h"
#include "verify/judge.h"
#include "verify/language_runner.h"
#include "verify/verify.h"

namespace chorus::verify {

namespace {

using formats::TensorStore;

struct Reference {
  std::vector<uint32_t> tokens;
  uint32_t logit_rows = 0;
  std::vector<float> logits;  // [logit_rows, vocabulary]: all rows or the last ones
  std::vector<uint32_t> greedy;
  std::vector<float> margins;
  std::vector<std::vector<float>> hidden;  // [tokens, hidden] each; may be empty
};

Result<std::vector<uint32_t>> read_ids(const TensorStore& store, const std::string& name) {
  CHORUS_ASSIGN(const formats::TensorInfo* tensor, store.require(name));
  std::vector<int32_t> values(tensor->elements);
  CHORUS_TRY(store.read_i32(*tensor, 0, values));
  std::vector<uint32_t> ids;
  for (int32_t value : values) {
    if (value < 0) return make_error(ErrorCode::invalid_input, name + ": negative token id " + std::to_string(value));
    ids.push_back(static_cast<uint32_t>(value));
  }
  return ids;
}

Result<std::vector<float>> read_floats(const TensorStore& store, const std::string& name, uint64_t cols) {
  CHORUS_ASSIGN(const formats::TensorInfo* tensor, store.require(name));
  if (cols > 0 && (tensor->shape.size() != 2 || tensor->shape[1] != cols)) {
    return make_error(ErrorCode::invalid_input,
                      name + ": expected rows of " + std::to_string(cols) + " values, found shape " + formats::shape_text(tensor->shape));
  }
  std::vector<float> values(tensor->elements);
  CHORUS_TRY(store.read_f32(*tensor, 0, values));
  return values;
}

Result<Reference> read_reference(const TensorStore& store, const std::string& prompt, uint32_t vocabulary, uint32_t hidden) {
  Reference reference;
  CHORUS_ASSIGN(reference.tokens, read_ids(store, prompt + ".input_ids"));
  CHORUS_ASSIGN(reference.logits, read_floats(store, prompt + ".logits", vocabulary));
  reference.logit_rows = static_cast<uint32_t>(reference.logits.size() / vocabulary);
  CHORUS_ASSIGN(reference.greedy, read_ids(store, prompt + ".greedy_ids"));
  CHORUS_ASSIGN(reference.margins, read_floats(store, prompt + ".greedy_margin", 0));
  if (reference.tokens.empty() || reference.logit_rows == 0 || reference.logit_rows > reference.tokens.size() ||
      reference.margins.size() != reference.greedy.size()) {
    return make_error(ErrorCode::invalid_input, prompt + ": token, logit and margin counts do not fit together");
  }
  for (size_t k = 0; store.find(prompt + ".hidden." + std::to_string(k)); ++k) {
    CHORUS_ASSIGN(std::vector<float> rows, read_floats(store, prompt + ".hidden." + std::to_string(k), hidden));
    if (rows.size() != reference.tokens.size() * hidden) {
      return make_error(ErrorCode::invalid_input, prompt + ".hidden." + std::to_string(k) + ": expected one row a token");
    }
    reference.hidden.push_back(std::move(rows));
  }
  return reference;
}

std::vector<double> softmax(std::span<const float> logits) {
  const double peak = *std::max_element(logits.begin(), logits.end());
  std::vector<double> values(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += values[i] = std::exp(static_cast<double>(logits[i]) - peak);
  for (double& value : values) value /= sum;
  return values;
}

uint32_t argmax(std::span<const float> values) {
  return static_cast<uint32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

void compare_logits(const Reference& reference, std::span<const float> logits, uint32_t vocabulary, const Tolerances& limits, Line& line) {
  for (uint32_t row = 0; row < reference.logit_rows; ++row) {
    const auto found = logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
    const auto expected = std::span(reference.logits).subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
    const std::vector<double> p = softmax(found), q = softmax(expected);
    for (uint32_t i = 0; i < vocabulary; ++i) {
      take_error(line.logit_error, found[i], expected[i]);
      take_error(line.probability_error, p[i], q[i]);
    }
    const uint32_t best = argmax(expected);
    const double gap = q[best] - p[argmax(found)];
    if (limits.argmax_gap > 0) {
      judge(line, argmax(found) == best || q[best] - q[argmax(found)] <= limits.argmax_gap,
            "row " + std::to_string(row) + ": best token differs by " + std::to_string(gap));
    }
  }
  judge(line, line.logit_error <= limits.logit, "logit error over " + std::to_string(limits.logit));
  judge(line, line.probability_error <= limits.probability, "probability error over " + std::to_string(limits.probability));
}

// Continues greedily from the logits of the prompt's last row. A step whose reference margin is a tie may differ, and ends the comparison.
// The reference recomputes the whole text at every step. Where sparse attention scores keys equally, its choice among them depends on the
// length of the text, so that earlier rows change with every token; a continued sequence keeps them. There a step that differs is done
// again as the reference does it.
Status compare_greedy(LanguageRunner& runner, std::vector<float> last_logits, const Reference& reference, const Tolerances& limits,
                      Line& line) {
  const auto capacity = static_cast<uint32_t>(reference.tokens.size() + reference.greedy.size());
  uint32_t recomputed = 0;
  for (size_t step = 0; step < reference.greedy.size(); ++step) {
    if (argmax(last_logits) != reference.greedy[step] && reference.margins[step] >= limits.margin_tie && runner.selects_keys()) {
      std::vector<uint32_t> text = reference.tokens;
      text.insert(text.end(), reference.greedy.begin(), reference.greedy.begin() + static_cast<ptrdiff_t>(step));
      CHORUS_ASSIGN(last_logits, runner.start(text, 1, capacity));
      ++recomputed;
    }
    const uint32_t token = argmax(last_logits);
    if (token != reference.greedy[step]) {
      if (reference.margins[step] < limits.margin_tie) break;
      ++line.token_mismatches;
      judge(line, false,
            "greedy step " + std::to_string(step) + ": expected token " + std::to_string(reference.greedy[step]) + ", found " +
                std::to_string(token));
      return {};
    }
    if (step + 1 == reference.greedy.size()) break;
    CHORUS_ASSIGN(last_logits, runner.next(token));
  }
  if (recomputed > 0 && line.pass) line.detail = std::to_string(recomputed) + " greedy steps as the reference recomputes them";
  return {};
}

Status compare_hidden(LanguageRunner& runner, const Reference& reference, const Tolerances& limits, Line& line) {
  if (reference.hidden.empty()) return {};
  CHORUS_ASSIGN(const auto found, runner.hidden_states(reference.tokens));
  judge(line, found.size() == reference.hidden.size(),
        "expected " + std::to_string(reference.hidden.size()) + " hidden states, found " + std::to_string(found.size()));
  for (size_t k = 0; k < std::min(found.size(), reference.hidden.size()); ++k) {
    double scale = 0, error = 0;
    for (float value : reference.hidden[k]) scale = std::max(scale, std::abs(static_cast<double>(value)));
    judge(line, found[k].size() == reference.hidden[k].size(),
          "hidden state " + std::to_string(k) + ": expected " + std::to_string(reference.hidden[k].size()) + " values, found " +
              std::to_string(found[k].size()));
    for (size_t i = 0; i < std::min(found[k].size(), reference.hidden[k].size()); ++i)
      take_error(error, found[k][i], reference.hidden[k][i]);
    const double relative = scale > 0 ? error / scale : error;
    line.hidden_error = std::max(line.hidden_error, relative);
    judge(line, relative <= limits.hidden,
          "hidden state " + std::to_string(k) + " is off by " + std::to_string(relative) + " of its largest value");
  }
  return {};
}

Result<Line> verify_prompt(LanguageRunner& runner, const TensorStore& store, const std::string& prompt, Tolerances limits) {
  const uint32_t vocabulary = runner.vocabulary();
  CHORUS_ASSIGN(const Reference reference, read_reference(store, prompt, vocabulary, runner.hidden()));
  Line line;
  line.name = prompt;
  const auto length = static_cast<uint32_t>(reference.tokens.size());
  const uint32_t capacity = length + static_cast<uint32_t>(reference.greedy.size());
  CHORUS_ASSIGN(const std::vector<float> logits, runner.start(reference.tokens, reference.logit_rows, capacity));
  compare_logits(reference, logits, vocabulary, limits, line);
  CHORUS_TRY(compare_greedy(runner, std::vector<float>(logits.end() - vocabulary, logits.end()), reference, limits, line));
  CHORUS_TRY(compare_hidden(runner, reference, limits, line));
  return line;
}

// Prompts and hidden states count from 0 without gaps. A reference behind a gap would never be compared, and nobody would know.
Status refuse_unreached(const TensorStore& store, const std::string& where) {
  std::set<std::string> reached;
  for (size_t i = 0; store.find("prompt" + std::to_string(i) + ".input_ids"); ++i) {
    const std::string prompt = "prompt" + std::to_string(i);
    for (const char* part : {".input_ids", ".logits", ".greedy_ids", ".greedy_margin"}) reached.insert(prompt + part);
    for (size_t k = 0; store.find(prompt + ".hidden." + std::to_string(k)); ++k) reached.insert(prompt + ".hidden." + std::to_string(k));
  }
  if (reached.empty()) return make_error(ErrorCode::invalid_input, where + ": holds no prompt (expected prompt0.input_ids)");
  for (const formats::TensorInfo& tensor : store.tensors()) {
    if (!tensor.name.starts_with("prompt") || reached.contains(tensor.name)) continue;
    return make_error(ErrorCode::invalid_input,
                      where + ": tensor " + quote_text(tensor.name) +
                          " would not be compared: expected prompts (input_ids) and hidden states from 0 without gaps");
  }
  return {};
}

}  // namespace

Result<Report> verify_logits(LanguageRunner& runner, const std::filesystem::path& golden, const Tolerances& limits, const OnLine& on_line) {
  CHORUS_ASSIGN(const TensorStore store, TensorStore::open(golden));
  CHORUS_TRY(refuse_unreached(store, golden.string()));
  Report report;
  report.kind = "language";
  std::vector<std::string> prompts;
  for (size_t i = 0; store.find("prompt" + std::to_string(i) + ".input_ids"); ++i) prompts.push_back("prompt" + std::to_string(i));
  const auto where = [&](const std::string& prompt) { return "while verifying " + prompt + " of " + golden.string(); };
  // A file that is damaged further down is refused before anything is compared.
  for (const std::string& prompt : prompts) {
    auto reference = read_reference(store, prompt, runner.vocabulary(), runner.hidden());
    if (!reference) return std::move(reference).error().with_context(where(prompt));
  }
  for (const std::string& prompt : prompts) {
    auto line = verify_prompt(runner, store, prompt, limits);
    if (!line) return std::move(line).error().with_context(where(prompt));
    report.add(std::move(line).value(), on_line);
  }
  return report;
}

}  // namespace chorus::verify
