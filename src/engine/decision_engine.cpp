#include "engine/decision_engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/bytes.h"

namespace chorus::engine {

using compute::LinearStore;
using compute::MutableView;
using compute::View;
using models::BufferPtr;
using models::Qwen35;

namespace {

Result<BufferPtr> upload(compute::Backend& backend, std::span<const std::byte> data, const char* label) {
  CHORUS_ASSIGN(BufferPtr buffer, backend.create_buffer(std::max<size_t>(data.size(), 4), label));
  if (!data.empty()) CHORUS_TRY(backend.write(*buffer, 0, data));
  return buffer;
}

Status check_plan(const MemoryPlan& plan, const compute::Backend& backend, const EngineOptions& options) {
  log_to(options.log, LogLevel::info, plan.to_line());
  if (options.memory_bytes_max > 0 && plan.total() > options.memory_bytes_max) {
    return make_error(ErrorCode::out_of_memory, "memory plan: needs " + size_text(plan.total()) + " (" + plan.to_line() +
                                                    "), the budget is " + size_text(options.memory_bytes_max));
  }
  const uint64_t buffer_max = backend.info().buffer_bytes_max;
  if (buffer_max > 0 && plan.largest_buffer > buffer_max) {
    return make_error(ErrorCode::limit_exceeded, "memory plan: the largest buffer has " + size_text(plan.largest_buffer) + ", " +
                                                     backend.info().device + " allows " + size_text(buffer_max));
  }
  return {};
}

Status check_branch(const BranchQuery& branch, size_t index) {
  const bool ascending = std::ranges::adjacent_find(branch.option_ends, std::greater_equal<>()) == branch.option_ends.end();
  if (branch.tokens.empty() || branch.option_ends.empty() || !ascending || branch.option_ends.back() >= branch.decide ||
      branch.decide >= branch.tokens.size()) {
    return make_error(ErrorCode::invalid_argument, "branch " + std::to_string(index) +
                                                       ": option ends must ascend and lie before the decide position, inside the branch");
  }
  return {};
}

}  // namespace

std::string MemoryPlan::to_line() const {
  return "memory: weights " + size_text(weights) + ", workspace " + size_text(workspace) + ", snapshot of " +
         std::to_string(snapshot_tokens) + " tokens " + size_text(snapshot);
}

MemoryPlan plan_memory(const formats::TextConfig& config, const compute::Backend& backend, const EngineOptions& options) {
  MemoryPlan plan;
  plan.weights = Qwen35::weight_bytes(config, backend, options.dtype);
  plan.workspace = Qwen35::workspace_bytes(config, backend, options.workspace_bytes_max, options.rows_max);
  plan.snapshot_tokens = options.plan_tokens;
  plan.snapshot = Qwen35::state_bytes(config, options.plan_tokens);
  plan.largest_buffer = Qwen35::largest_buffer_bytes(config, options.plan_tokens);
  return plan;
}

std::vector<std::string_view> operations_of(const formats::TextConfig& config, bool with_head) {
  std::vector<std::string_view> names = Qwen35::operations(config);
  if (with_head) names.insert(names.end(), {"pointer_scores", "segment_softmax"});
  return names;
}

std::vector<BranchPass> plan_branch_passes(std::span<const uint32_t> branch_tokens, uint32_t rows_max) {
  std::vector<BranchPass> passes;
  for (size_t i = 0; i < branch_tokens.size(); ++i) {
    const bool fits = !passes.empty() && passes.back().tokens + branch_tokens[i] <= rows_max;
    if (!fits) passes.push_back({i, 0, 0});
    passes.back().count += 1;
    passes.back().tokens += branch_tokens[i];
  }
  return passes;
}

Result<std::unique_ptr<DecisionEngine>> DecisionEngine::load(compute::Backend& backend, const formats::Checkpoint& checkpoint,
                                                             const EngineOptions& options) {
  if (!checkpoint.head) {
    return make_error(ErrorCode::unsupported,
                      checkpoint.path.string() + ": has no pointer head (head.pt or head.safetensors), so it cannot answer questions");
  }
  return load(backend, checkpoint.config, *checkpoint.weights, *checkpoint.head, checkpoint.metadata.temperature, options);
}

Result<std::unique_ptr<DecisionEngine>> DecisionEngine::load(compute::Backend& backend, const formats::TextConfig& config,
                                                             const formats::WeightSource& weights, const formats::PointerHead& head,
                                                             double temperature, const EngineOptions& options) {
  std::unique_ptr<DecisionEngine> engine(new DecisionEngine());
  engine->temperature_ = options.temperature != 0 ? options.temperature : temperature;
  if (!(engine->temperature_ >= kTemperatureMin && engine->temperature_ <= kTemperatureMax)) {
    char text[96];
    std::snprintf(text, sizeof text, "temperature: expected %g to %g, found %g", kTemperatureMin, kTemperatureMax, engine->temperature_);
    return make_error(ErrorCode::invalid_input, text);
  }
  if (head.hidden_size != config.hidden_size) {
    return make_error(ErrorCode::invalid_input, "pointer head: expected width " + std::to_string(config.hidden_size) +
                                                    " (the model's hidden size), found " + std::to_string(head.hidden_size));
  }
  engine->plan_ = plan_memory(config, backend, options);
  CHORUS_TRY(check_plan(engine->plan_, backend, options));
  models::LoadOptions load_options;
  load_options.dtype = options.dtype;
  load_options.workspace_bytes_max = options.workspace_bytes_max;
  load_options.rows_max = options.rows_max;
  load_options.progress = options.progress;
  CHORUS_ASSIGN(engine->model_, Qwen35::load(backend, config, weights, load_options));
  CHORUS_TRY(engine->bind_head(head));
  return engine;
}

Status DecisionEngine::bind_head(const formats::PointerHead& head) {
  compute::Backend& backend = model_->backend();
  head_dim_ = head.head_dim;
  auto matrix = [&](const std::vector<float>& values, const char* label) {
    return backend.create_weight(label, head.head_dim, head.hidden_size, DType::f32,
                                 [&](uint32_t first, uint32_t count, std::span<float> out) -> Status {
                                   std::copy_n(values.begin() + static_cast<ptrdiff_t>(first) * head.hidden_size,
                                               static_cast<size_t>(count) * head.hidden_size, out.begin());
                                   return {};
                                 });
  };
  CHORUS_ASSIGN(query_weight_, matrix(head.q_weight, "head q"));
  CHORUS_ASSIGN(key_weight_, matrix(head.k_weight, "head k"));
  CHORUS_ASSIGN(query_bias_, upload(backend, std::as_bytes(std::span(head.q_bias)), "head q bias"));
  CHORUS_ASSIGN(key_bias_, upload(backend, std::as_bytes(std::span(head.k_bias)), "head k bias"));
  return {};
}

Result<Prefix> DecisionEngine::prefill(std::span<const uint32_t> tokens) const {
  if (tokens.empty()) return make_error(ErrorCode::invalid_argument, "prefill: a state has at least its delimiter token");
  if (tokens.size() > model_->config().max_positions) {
    return make_error(ErrorCode::limit_exceeded, "state: " + std::to_string(tokens.size()) + " tokens, the model has " +
                                                     std::to_string(model_->config().max_positions) + " positions");
  }
  CHORUS_ASSIGN(std::shared_ptr<models::SequenceState> state, model_->new_state(static_cast<uint32_t>(tokens.size())));
  CHORUS_TRY(model_->advance(*state, tokens, {}));
  Qwen35::seal(*state);
  return Prefix(std::move(state));
}

// Final hidden rows of every branch: its option ends, then its decide position, branch after branch.
Result<BufferPtr> DecisionEngine::read_branches(const Prefix& prefix, std::span<const BranchQuery> branches) const {
  std::vector<uint32_t> tokens, lengths, outputs;
  for (const BranchQuery& branch : branches) {
    const uint32_t start = static_cast<uint32_t>(tokens.size());
    for (uint32_t end : branch.option_ends) outputs.push_back(start + end);
    outputs.push_back(start + branch.decide);
    tokens.insert(tokens.end(), branch.tokens.begin(), branch.tokens.end());
    lengths.push_back(static_cast<uint32_t>(branch.tokens.size()));
  }
  if (tokens.size() <= model_->pass_rows_max()) return model_->read_rows(prefix.state(), {tokens, lengths}, outputs);
  // One branch that is longer than a pass: it continues a private copy of the snapshot, piece by piece.
  CHORUS_CHECK(branches.size() == 1);
  CHORUS_ASSIGN(auto state, model_->clone_state(prefix.state(), prefix.tokens() + static_cast<uint32_t>(tokens.size())));
  return model_->advance(*state, tokens, outputs);
}

namespace {

// Where the read rows of a pass go: each branch's are its option ends, then its decide position.
struct HeadRows {
  std::vector<uint32_t> options;         // row of each option
  std::vector<uint32_t> questions;       // row of each decide position
  std::vector<uint32_t> owners;          // question of each option
  std::vector<uint32_t> segments = {0};  // first option of each question, and the end
  uint32_t row_count = 0;

  explicit HeadRows(std::span<const BranchQuery> branches) {
    for (const BranchQuery& branch : branches) {
      for (size_t i = 0; i < branch.option_ends.size(); ++i) {
        options.push_back(row_count++);
        owners.push_back(static_cast<uint32_t>(questions.size()));
      }
      questions.push_back(row_count++);
      segments.push_back(static_cast<uint32_t>(options.size()));
    }
  }
};

// Cuts the values of all options into those of each question.
Status take_scores(const HeadRows& rows, std::span<const float> logits, std::span<const float> probabilities,
                   std::vector<BranchScores>& out) {
  for (size_t q = 0; q < rows.questions.size(); ++q) {
    BranchScores scores;
    for (uint32_t o = rows.segments[q]; o < rows.segments[q + 1]; ++o) {
      if (!std::isfinite(logits[o]) || !std::isfinite(probabilities[o])) {
        // Every weight was checked, so what is left are finite weights whose products are too large.
        return make_error(ErrorCode::invalid_input,
                          "question " + std::to_string(out.size()) + ": option " + std::to_string(o - rows.segments[q]) +
                              ": expected a finite logit, found infinity or NaN: the model's weights overflow f32");
      }
      scores.logits.push_back(logits[o]);
      scores.probabilities.push_back(probabilities[o]);
    }
    out.push_back(std::move(scores));
  }
  return {};
}

}  // namespace

Status DecisionEngine::score(const compute::Buffer& hidden, std::span<const BranchQuery> branches, std::vector<BranchScores>& out) const {
  compute::Backend& backend = model_->backend();
  const HeadRows rows(branches);
  const uint32_t options = static_cast<uint32_t>(rows.options.size()), questions = static_cast<uint32_t>(rows.questions.size());
  const uint32_t width = model_->config().hidden_size;
  auto device_u32 = [&](const std::vector<uint32_t>& values) { return upload(backend, std::as_bytes(std::span(values)), "head indices"); };
  auto floats = [&](uint64_t count) { return backend.create_buffer(4 * count, "head rows"); };
  CHORUS_ASSIGN(BufferPtr option_index, device_u32(rows.options));
  CHORUS_ASSIGN(BufferPtr decide_index, device_u32(rows.questions));
  CHORUS_ASSIGN(BufferPtr owner, device_u32(rows.owners));
  CHORUS_ASSIGN(BufferPtr segments, device_u32(rows.segments));
  CHORUS_ASSIGN(BufferPtr option_hidden, floats(static_cast<uint64_t>(options) * width));
  CHORUS_ASSIGN(BufferPtr decide_hidden, floats(static_cast<uint64_t>(questions) * width));
  CHORUS_ASSIGN(BufferPtr keys, floats(static_cast<uint64_t>(options) * head_dim_));
  CHORUS_ASSIGN(BufferPtr queries, floats(static_cast<uint64_t>(questions) * head_dim_));
  CHORUS_ASSIGN(BufferPtr logits, floats(options));
  CHORUS_ASSIGN(BufferPtr probabilities, floats(options));

  const View read{&hidden, 0, rows.row_count, width, width};
  const MutableView option_view{option_hidden.get(), 0, options, width, width},
      decide_view{decide_hidden.get(), 0, questions, width, width};
  const MutableView key_view{keys.get(), 0, options, head_dim_, head_dim_}, query_view{queries.get(), 0, questions, head_dim_, head_dim_};
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->gather_rows({read, option_index.get(), option_view}));
  CHORUS_TRY(batch->gather_rows({read, decide_index.get(), decide_view}));
  CHORUS_TRY(batch->linear({option_view, key_weight_.get(), key_bias_.get(), key_view, LinearStore::overwrite}));
  CHORUS_TRY(batch->linear({decide_view, query_weight_.get(), query_bias_.get(), query_view, LinearStore::overwrite}));
  CHORUS_TRY(batch->pointer_scores({query_view, key_view, owner.get(), 1.0f / std::sqrt(static_cast<float>(head_dim_)),
                                    static_cast<float>(temperature_), logits.get()}));
  CHORUS_TRY(batch->segment_softmax({logits.get(), segments.get(), questions, options, probabilities.get()}));
  // Logits and probabilities side by side, so that one readback fetches both.
  CHORUS_ASSIGN(BufferPtr both, floats(2ull * options));
  CHORUS_TRY(batch->copy({logits.get(), 0, both.get(), 0, 4ull * options}));
  CHORUS_TRY(batch->copy({probabilities.get(), 0, both.get(), 4ull * options, 4ull * options}));
  CHORUS_TRY(batch->submit());
  std::vector<float> host(2ull * options);
  CHORUS_TRY(backend.read(*both, 0, std::as_writable_bytes(std::span(host))));
  return take_scores(rows, std::span(host).first(options), std::span(host).subspan(options), out);
}

Result<std::vector<BranchScores>> DecisionEngine::evaluate(const Prefix& prefix, std::span<const BranchQuery> branches) const {
  std::vector<uint32_t> lengths;
  for (size_t i = 0; i < branches.size(); ++i) {
    CHORUS_TRY(check_branch(branches[i], i));
    const uint64_t row = static_cast<uint64_t>(prefix.tokens()) + branches[i].tokens.size();
    if (row > model_->config().max_positions) {
      return make_error(ErrorCode::limit_exceeded, "branch " + std::to_string(i) + ": " + std::to_string(row) +
                                                       " tokens with its state, the model has " +
                                                       std::to_string(model_->config().max_positions) + " positions");
    }
    lengths.push_back(static_cast<uint32_t>(branches[i].tokens.size()));
  }
  std::vector<BranchScores> scores;
  scores.reserve(branches.size());
  for (const BranchPass& pass : plan_branch_passes(lengths, model_->pass_rows_max())) {
    const auto part = branches.subspan(pass.first, pass.count);
    CHORUS_ASSIGN(BufferPtr hidden, read_branches(prefix, part));
    CHORUS_TRY(score(*hidden, part, scores));
  }
  return scores;
}

Status DecisionEngine::finish() const {
  float ignored = 0;
  return model_->backend().read(*key_bias_, 0, std::as_writable_bytes(std::span(&ignored, 1)));
}

}  // namespace chorus::engine
