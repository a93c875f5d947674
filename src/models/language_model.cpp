#include "models/language_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "models/blueprint_tensors.h"
#include "models/layers/layer.h"

namespace chorus::models {

namespace {

using compute::LinearStore;
using compute::MutableView;
using compute::View;
using layers::kScratchCount;
using layers::LayerState;
using layers::Pass;
using layers::PassPart;
using layers::ScratchColumns;

// One-token steps of several sequences share a pass of at most this many rows: few enough that products of one row and of all of them add
// up in the same order on every backend, so that a row's bits do not depend on its company.
constexpr uint32_t kSharedRowsMax = 8;
constexpr uint32_t kChunkRows = 64;  // passes of a prompt are multiples of it: whole chunks of the delta rule

class SequenceState final : public Sequence {
 public:
  SequenceState(const void* owner, uint32_t capacity) : owner_(owner), capacity_(capacity) {}
  uint32_t length() const override { return length_; }
  uint32_t capacity() const override { return capacity_; }

  const void* owner_;
  uint32_t capacity_;
  uint32_t length_ = 0;
  uint32_t current_ = 0;  // of the carried buffers
  bool broken_ = false;   // an error left it half written
  std::vector<LayerState> layers_;
};

struct Layer {
  BufferPtr input_norm, post_norm;
  layers::MixerPtr mixer;
  layers::FeedForwardPtr feed_forward;
};

struct Workspace {
  BufferPtr ids, spans, outputs;
  BufferPtr x, normed, tail;
  std::array<BufferPtr, kScratchCount> scratch;
  std::vector<BufferPtr> cosine, sine;
  BufferPtr route_experts, route_weights, routed;
  std::vector<BufferPtr> selections;
  std::array<uint32_t, 2> written_span{};  // what `spans` and `outputs` hold
  std::vector<uint32_t> written_outputs;
};

// Tokens of one sequence in a pass.
struct PassStep {
  SequenceState* sequence = nullptr;
  std::span<const uint32_t> tokens;
  uint32_t horizon = 0;  // tokens of the sequence as far as they are known
};

// What a pass returns rows of: indices of rows, and where their logits go.
struct PassOutput {
  std::vector<uint32_t> rows;
  compute::Buffer* logits = nullptr;
  uint64_t first_logits_row = 0;
  std::function<Status(compute::Batch&, const MutableView&)> after_layer;  // sees the residual stream, and the final norm's rows
};

class Model final : public LanguageModel {
 public:
  Model(compute::Backend& backend, const Blueprint& blueprint, ExpertExecutor* experts)
      : backend_(backend), blueprint_(blueprint), experts_(experts) {}

  Status bind(const formats::WeightSource& weights, const LanguageModelOptions& options);

  const Blueprint& blueprint() const override { return blueprint_; }
  compute::Backend& backend() const override { return backend_; }
  uint32_t pass_rows_max() const override { return rows_max_; }
  Result<std::unique_ptr<Sequence>> new_sequence(uint32_t capacity) const override;
  Result<std::unique_ptr<Sequence>> clone(const Sequence& sequence, uint32_t capacity) const override;
  uint64_t sequence_bytes(uint32_t capacity) const override;
  Result<Logits> forward(std::span<const SequenceStep> steps, OutputRows outputs) override;
  Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t> tokens) override;

 private:
  Status plan_rows(const LanguageModelOptions& options);
  Status make_workspace();
  Result<BufferPtr> logits_buffer(uint64_t bytes, bool keep);
  Status check_steps(std::span<const SequenceStep> steps, std::vector<SequenceState*>& sequences) const;
  Status run_prompt(const PassStep& prompt, bool all, compute::Buffer* logits, uint64_t logits_row);
  Status run_pass(std::span<const PassStep> steps, const PassOutput& output);
  Status append_hidden_states(const PassStep& step, std::vector<std::vector<float>>& states);
  Status fill_inputs(std::span<const PassStep> steps, const PassOutput& output);
  Pass begin_pass(std::span<const PassStep> steps, compute::Batch& batch) const;
  Status run_layers(Pass& pass, const PassOutput& output, MutableView& tail) const;
  Status finish_pass(Pass& pass, const PassOutput& output, const MutableView& tail) const;
  compute::RowNorm norm_by(const BufferPtr& weight, const MutableView& out) const;

  compute::Backend& backend_;
  Blueprint blueprint_;
  ExpertExecutor* experts_;
  WeightPtr embedding_, language_head_;
  BufferPtr final_norm_;
  std::vector<Layer> layers_;
  layers::RopeTables ropes_;
  uint32_t rows_max_ = 1;
  uint32_t routes_max_ = 0;
  ScratchColumns scratch_columns_{};
  std::unique_ptr<Workspace> workspace_;  // made by the first pass
  BufferPtr spare_logits_;                // of an earlier call; free when nobody else holds it
};

uint64_t matrix_bytes(const Blueprint& blueprint, const compute::Backend& backend, DType dtype) {
  uint64_t bytes = 0;
  for (const NamedShape& tensor : resident_tensors(blueprint)) {
    if (tensor.shape.size() != 2) continue;
    bytes += backend.weight_bytes(static_cast<uint32_t>(tensor.shape[0]), static_cast<uint32_t>(tensor.shape[1]), dtype);
  }
  return bytes;
}

Result<layers::MixerPtr> bind_mixer(WeightBinder& binder, const LayerSpec& spec, const layers::Trunk& trunk) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec.mixer)) return layers::bind_attention(binder, *attention, trunk);
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&spec.mixer)) return layers::bind_latent_attention(binder, *latent, trunk);
  return layers::bind_delta(binder, std::get<DeltaSpec>(spec.mixer), trunk);
}

Result<layers::FeedForwardPtr> bind_feed_forward(WeightBinder& binder, const LayerSpec& spec, const layers::Trunk& trunk) {
  if (const auto* dense = std::get_if<DenseSpec>(&spec.feed_forward)) return layers::bind_dense(binder, *dense, trunk);
  return layers::bind_moe(binder, std::get<MoeSpec>(spec.feed_forward), trunk);
}

Status Model::bind(const formats::WeightSource& weights, const LanguageModelOptions& options) {
  const uint32_t hidden = blueprint_.hidden;
  WeightBinder binder(backend_, weights, options.dtype, options.progress, matrix_bytes(blueprint_, backend_, options.dtype));
  CHORUS_ASSIGN(embedding_, binder.matrix(blueprint_.embedding, blueprint_.vocabulary, hidden));
  CHORUS_ASSIGN(final_norm_, binder.vector(blueprint_.final_norm, hidden));
  language_head_ = embedding_;
  if (blueprint_.language_head != blueprint_.embedding) {
    CHORUS_ASSIGN(language_head_, binder.matrix(blueprint_.language_head, blueprint_.vocabulary, hidden));
  }
  const layers::Trunk trunk{hidden, blueprint_.epsilon, blueprint_.norm_form, &ropes_};
  for (const LayerSpec& spec : blueprint_.layers) {
    Layer& layer = layers_.emplace_back();
    CHORUS_ASSIGN(layer.input_norm, binder.vector(spec.input_norm, hidden));
    CHORUS_ASSIGN(layer.post_norm, binder.vector(spec.post_norm, hidden));
    CHORUS_ASSIGN(layer.mixer, bind_mixer(binder, spec, trunk));
    CHORUS_ASSIGN(layer.feed_forward, bind_feed_forward(binder, spec, trunk));
    if (layer.feed_forward->routes() > 0 && !experts_)
      return make_error(ErrorCode::invalid_argument, "language model: layers with experts, but no executor for them");
  }
  if (experts_) {
    std::vector<WeightPtr> routers;
    for (const Layer& layer : layers_) routers.push_back(layer.feed_forward->router());
    CHORUS_TRY(experts_->take_routers(routers));
  }
  return plan_rows(options);
}

// Rows that one pass may have under the workspace budget and the backend's binding limit.
Status Model::plan_rows(const LanguageModelOptions& options) {
  uint64_t routed = 0, expert_scratch = 0, widest = blueprint_.hidden;
  for (const Layer& layer : layers_) {
    for (const ScratchColumns& columns : {layer.mixer->scratch_columns(), layer.feed_forward->scratch_columns()}) {
      for (size_t i = 0; i < kScratchCount; ++i) scratch_columns_[i] = std::max(scratch_columns_[i], columns[i]);
    }
    routes_max_ = std::max(routes_max_, layer.feed_forward->routes());
    routed = std::max(routed, uint64_t{layer.feed_forward->routes()} * blueprint_.hidden);
    expert_scratch = std::max(expert_scratch, uint64_t{3} * layer.feed_forward->routes() * layer.feed_forward->expert_inner());
  }
  uint64_t elements = 3ull * blueprint_.hidden + routed + expert_scratch;
  for (uint64_t& columns : scratch_columns_) {
    columns = (columns + 3) / 4 * 4;  // as Pass::scratch pads rows
    elements += columns;
    widest = std::max(widest, columns);
  }
  for (size_t i = 0; i < ropes_.count(); ++i) elements += 2ull * ropes_.half(i);
  elements += widest;  // a copy of the widest row in another form, as backends make for a product
  widest = std::max(widest, routed);
  uint64_t rows = std::min<uint64_t>(std::max(options.rows_max, 1u), options.workspace_bytes_max / (4 * elements));
  rows = std::min<uint64_t>(rows, backend_.info().binding_bytes_max / (4 * widest));
  if (rows == 0) {
    return make_error(ErrorCode::out_of_memory, "workspace: one row needs " + std::to_string(4 * elements) + " bytes, of at most " +
                                                    std::to_string(options.workspace_bytes_max) + " and bindings of " +
                                                    std::to_string(backend_.info().binding_bytes_max));
  }
  rows_max_ = static_cast<uint32_t>(rows >= kChunkRows ? rows - rows % kChunkRows : rows);
  return {};
}

Status Model::make_workspace() {
  if (workspace_) return {};
  auto space = std::make_unique<Workspace>();
  const uint64_t rows = std::max(rows_max_, kSharedRowsMax);
  const auto make = [&](BufferPtr& buffer, uint64_t elements, const char* label) -> Status {
    if (elements == 0) return {};
    CHORUS_ASSIGN(buffer, backend_.create_buffer(4 * elements, label));
    return {};
  };
  CHORUS_TRY(make(space->ids, rows, "token ids"));
  CHORUS_TRY(make(space->spans, 2, "rows of a sequence"));
  CHORUS_TRY(make(space->outputs, rows, "output rows"));
  CHORUS_TRY(make(space->x, rows * blueprint_.hidden, "residual stream"));
  CHORUS_TRY(make(space->normed, rows * blueprint_.hidden, "normalised rows"));
  CHORUS_TRY(make(space->tail, rows * blueprint_.hidden, "rows of the output"));
  for (size_t i = 0; i < kScratchCount; ++i) CHORUS_TRY(make(space->scratch[i], rows * scratch_columns_[i], "scratch of layers"));
  space->cosine.resize(ropes_.count());
  space->sine.resize(ropes_.count());
  for (size_t i = 0; i < ropes_.count(); ++i) {
    CHORUS_TRY(make(space->cosine[i], rows * ropes_.half(i), "cosines"));
    CHORUS_TRY(make(space->sine[i], rows * ropes_.half(i), "sines"));
  }
  CHORUS_TRY(make(space->route_experts, rows * routes_max_, "experts of routes"));
  CHORUS_TRY(make(space->route_weights, rows * routes_max_, "weights of routes"));
  CHORUS_TRY(make(space->routed, rows * routes_max_ * blueprint_.hidden, "outputs of experts"));
  workspace_ = std::move(space);
  return {};
}

// A GPU binds the same buffer faster than a new one, and a step of decoding asks for one each time.
Result<BufferPtr> Model::logits_buffer(uint64_t bytes, bool keep) {
  if (spare_logits_ && spare_logits_.use_count() == 1 && spare_logits_->bytes() == bytes) return spare_logits_;
  CHORUS_ASSIGN(BufferPtr made, backend_.create_buffer(bytes, "logits"));
  if (keep) spare_logits_ = made;
  return made;
}

Result<std::unique_ptr<Sequence>> Model::new_sequence(uint32_t capacity) const {
  if (capacity > blueprint_.context) {
    return make_error(ErrorCode::limit_exceeded, "sequence: room for " + std::to_string(capacity) + " tokens, the model reads at most " +
                                                     std::to_string(blueprint_.context));
  }
  auto sequence = std::make_unique<SequenceState>(this, capacity);
  for (const Layer& layer : layers_) {
    const layers::StateShape shape = layer.mixer->state_shape();
    LayerState& state = sequence->layers_.emplace_back();
    for (const uint64_t elements : shape.row_elements) {
      CHORUS_ASSIGN(BufferPtr buffer, backend_.create_buffer(4 * elements * std::max(capacity, 1u), "rows of a sequence"));
      state.rows.push_back(std::move(buffer));
    }
    for (const uint64_t elements : shape.carried_elements) {
      auto& pair = state.carried.emplace_back();
      for (BufferPtr& buffer : pair) {
        CHORUS_ASSIGN(buffer, backend_.create_buffer(4 * elements, "state of a sequence"));
      }
    }
  }
  return std::unique_ptr<Sequence>(std::move(sequence));
}

Result<std::unique_ptr<Sequence>> Model::clone(const Sequence& sequence, uint32_t capacity) const {
  const auto* from = dynamic_cast<const SequenceState*>(&sequence);
  if (!from || from->owner_ != this || from->broken_)
    return make_error(ErrorCode::invalid_argument, "clone: the sequence is not a usable one of this model");
  if (capacity < from->length_) {
    return make_error(ErrorCode::invalid_argument,
                      "clone: room for " + std::to_string(capacity) + " tokens, the sequence has " + std::to_string(from->length_));
  }
  CHORUS_ASSIGN(auto made, new_sequence(capacity));
  auto& to = static_cast<SequenceState&>(*made);
  to.length_ = from->length_;
  CHORUS_ASSIGN(auto batch, backend_.begin_batch());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const layers::StateShape shape = layers_[i].mixer->state_shape();
    for (size_t k = 0; k < shape.row_elements.size() && from->length_ > 0; ++k)
      CHORUS_TRY(batch->copy({from->layers_[i].rows[k].get(), 0, to.layers_[i].rows[k].get(), 0, 4 * shape.row_elements[k] * to.length_}));
    for (size_t k = 0; k < shape.carried_elements.size(); ++k) {
      const BufferPtr& live = from->layers_[i].carried[k][from->current_];
      CHORUS_TRY(batch->copy({live.get(), 0, to.layers_[i].carried[k][0].get(), 0, live->bytes()}));
    }
  }
  CHORUS_TRY(batch->submit());
  return made;
}

uint64_t Model::sequence_bytes(uint32_t capacity) const {
  uint64_t bytes = 0;
  for (const Layer& layer : layers_) {
    const layers::StateShape shape = layer.mixer->state_shape();
    for (const uint64_t elements : shape.row_elements) bytes += 4 * elements * std::max(capacity, 1u);
    for (const uint64_t elements : shape.carried_elements) bytes += 2 * 4 * elements;
  }
  return bytes;
}

Status Model::check_steps(std::span<const SequenceStep> steps, std::vector<SequenceState*>& sequences) const {
  std::set<const Sequence*> seen;
  for (const SequenceStep& step : steps) {
    auto* sequence = dynamic_cast<SequenceState*>(step.sequence);
    if (!sequence || sequence->owner_ != this || sequence->broken_)
      return make_error(ErrorCode::invalid_argument, "step: the sequence is not a usable one of this model");
    if (!seen.insert(sequence).second) return make_error(ErrorCode::invalid_argument, "steps: a sequence appears twice");
    if (step.tokens.empty()) return make_error(ErrorCode::invalid_argument, "step: expected at least one token, found none");
    if (step.tokens.size() > sequence->capacity_ - sequence->length_) {
      return make_error(ErrorCode::limit_exceeded, "sequence: room for " + std::to_string(sequence->capacity_ - sequence->length_) +
                                                       " more tokens, asked for " + std::to_string(step.tokens.size()));
    }
    for (const uint32_t token : step.tokens) {
      if (token < blueprint_.vocabulary) continue;
      return make_error(ErrorCode::limit_exceeded,
                        "token id " + std::to_string(token) + " is outside the vocabulary of " + std::to_string(blueprint_.vocabulary));
    }
    sequences.push_back(sequence);
  }
  return {};
}

Result<Logits> Model::forward(std::span<const SequenceStep> steps, OutputRows outputs) {
  std::vector<SequenceState*> sequences;
  CHORUS_TRY(check_steps(steps, sequences));
  CHORUS_TRY(make_workspace());
  uint64_t rows = 0;
  for (const SequenceStep& step : steps) rows += outputs == OutputRows::all ? step.tokens.size() : 1;
  Logits logits;
  if (rows == 0) return logits;
  if (rows > UINT32_MAX) return make_error(ErrorCode::limit_exceeded, "logits: more rows than 2^32 - 1");
  logits.rows = static_cast<uint32_t>(rows);
  CHORUS_ASSIGN(logits.buffer, logits_buffer(4 * rows * blueprint_.vocabulary, rows <= kSharedRowsMax));
  for (SequenceState* sequence : sequences) sequence->broken_ = true;  // until all went well
  uint64_t logits_row = 0;
  const auto pass_step = [&](size_t i) {
    const uint64_t known = uint64_t{sequences[i]->length_} + steps[i].tokens.size() + steps[i].following;
    return PassStep{sequences[i], steps[i].tokens, static_cast<uint32_t>(std::min<uint64_t>(known, blueprint_.context))};
  };
  for (size_t i = 0; i < steps.size();) {
    if (steps[i].tokens.size() > 1) {
      const bool all = outputs == OutputRows::all;
      CHORUS_TRY(run_prompt(pass_step(i), all, logits.buffer.get(), logits_row));
      logits_row += all ? steps[i].tokens.size() : 1;
      ++i;
      continue;
    }
    std::vector<PassStep> shared;
    PassOutput output;
    const uint32_t most = std::min(kSharedRowsMax, std::max(rows_max_, 1u));
    for (; i < steps.size() && steps[i].tokens.size() == 1 && shared.size() < most; ++i) {
      output.rows.push_back(static_cast<uint32_t>(shared.size()));
      shared.push_back(pass_step(i));
    }
    output.logits = logits.buffer.get();
    output.first_logits_row = logits_row;
    CHORUS_TRY(run_pass(shared, output));
    logits_row += shared.size();
  }
  for (SequenceState* sequence : sequences) sequence->broken_ = false;
  return logits;
}

// Splits a prompt in passes of about equal size: a short last one would leave most of a wide device idle.
Status Model::run_prompt(const PassStep& prompt, bool all, compute::Buffer* logits, uint64_t logits_row) {
  const std::span<const uint32_t> tokens = prompt.tokens;
  const size_t passes = (tokens.size() + rows_max_ - 1) / rows_max_;
  const size_t even = ((tokens.size() + passes - 1) / passes + kChunkRows - 1) / kChunkRows * kChunkRows;
  const size_t piece_rows = std::min<size_t>(even, rows_max_);
  for (size_t done = 0; done < tokens.size();) {
    const size_t rows = std::min(piece_rows, tokens.size() - done);
    const bool last = done + rows == tokens.size();
    PassOutput output;
    for (size_t i = all ? 0 : rows - 1; (all || last) && i < rows; ++i) output.rows.push_back(static_cast<uint32_t>(i));
    output.logits = logits;
    output.first_logits_row = logits_row + (all ? done : 0);
    const PassStep step{prompt.sequence, tokens.subspan(done, rows), prompt.horizon};
    CHORUS_TRY(run_pass(std::span(&step, 1), output));
    done += rows;
  }
  return {};
}

Status Model::fill_inputs(std::span<const PassStep> steps, const PassOutput& output) {
  Workspace& space = *workspace_;
  std::vector<uint32_t> ids;
  for (const PassStep& step : steps) ids.insert(ids.end(), step.tokens.begin(), step.tokens.end());
  const uint32_t span[2] = {0, static_cast<uint32_t>(steps[0].tokens.size())};
  CHORUS_TRY(backend_.write(*space.ids, 0, std::as_bytes(std::span<const uint32_t>(ids))));
  // From one step of decoding to the next these two stay the same.
  if (!std::ranges::equal(span, space.written_span)) {
    CHORUS_TRY(backend_.write(*space.spans, 0, std::as_bytes(std::span(span))));
    std::ranges::copy(span, space.written_span.begin());
  }
  if (output.rows != space.written_outputs) {
    if (!output.rows.empty()) CHORUS_TRY(backend_.write(*space.outputs, 0, std::as_bytes(std::span(output.rows))));
    space.written_outputs = output.rows;
  }
  std::vector<float> cosine, sine;
  for (size_t table = 0; table < ropes_.count(); ++table) {
    const size_t half = ropes_.half(table);
    cosine.resize(ids.size() * half);
    sine.resize(ids.size() * half);
    size_t row = 0;
    for (const PassStep& step : steps) {
      for (uint32_t i = 0; i < step.tokens.size(); ++i, ++row) {
        ropes_.fill(table, step.sequence->length_ + i, std::span(cosine).subspan(row * half, half),
                    std::span(sine).subspan(row * half, half));
      }
    }
    CHORUS_TRY(backend_.write(*space.cosine[table], 0, std::as_bytes(std::span<const float>(cosine))));
    CHORUS_TRY(backend_.write(*space.sine[table], 0, std::as_bytes(std::span<const float>(sine))));
  }
  return {};
}

Pass Model::begin_pass(std::span<const PassStep> steps, compute::Batch& batch) const {
  Workspace& space = *workspace_;
  Pass pass;
  pass.backend = &backend_;
  pass.batch = &batch;
  pass.part_rows = static_cast<uint32_t>(steps[0].tokens.size());
  for (const PassStep& step : steps) {
    pass.parts.push_back({pass.rows, step.sequence->length_, step.sequence->current_, step.horizon, step.sequence->layers_});
    pass.rows += pass.part_rows;
  }
  pass.part_sequence.spans.push_back({0, pass.part_rows});
  pass.part_sequence.device = space.spans.get();
  pass.x = view_of(space.x.get(), pass.rows, blueprint_.hidden);
  pass.normed = view_of(space.normed.get(), pass.rows, blueprint_.hidden);
  for (size_t i = 0; i < kScratchCount; ++i) pass.scratch_buffers[i] = space.scratch[i].get();
  for (size_t i = 0; i < ropes_.count(); ++i) {
    pass.cosine.push_back(view_of(space.cosine[i].get(), pass.rows, ropes_.half(i)));
    pass.sine.push_back(view_of(space.sine[i].get(), pass.rows, ropes_.half(i)));
  }
  pass.route_experts = space.route_experts.get();
  pass.route_weights = space.route_weights.get();
  pass.routed = space.routed.get();
  pass.experts = experts_;
  pass.selected.resize(steps.size(), nullptr);
  pass.selection_buffers = &workspace_->selections;
  return pass;
}

compute::RowNorm Model::norm_by(const BufferPtr& weight, const MutableView& out) const {
  return {weight.get(), blueprint_.epsilon, blueprint_.norm_form, out};
}

// After the last mixer only the output rows go on, in `tail`.
Status Model::run_layers(Pass& pass, const PassOutput& output, MutableView& tail) const {
  compute::Batch& batch = *pass.batch;
  CHORUS_TRY(batch.embed({workspace_->ids.get(), embedding_.get(), pass.x}));
  if (output.after_layer) CHORUS_TRY(output.after_layer(batch, pass.x));
  const auto count = static_cast<uint32_t>(output.rows.size());
  // Recording a step of few rows takes half as long as running it. So the device begins with the first layer, and each piece keeps it busy
  // while the next, a layer longer, is recorded.
  const bool flushes = pass.rows <= kSharedRowsMax;
  size_t next_flush = 1, piece = 1;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const bool last = i + 1 == layers_.size();
    CHORUS_TRY(layer.mixer->run(pass, i, norm_by(layer.input_norm, pass.normed)));
    tail = pass.x;
    if (last && count == 0) return {};
    if (last && count < pass.rows) {
      tail = view_of(workspace_->tail.get(), count, blueprint_.hidden);
      CHORUS_TRY(batch.gather_rows({pass.x, workspace_->outputs.get(), tail}));
    }
    CHORUS_TRY(layer.feed_forward->run(pass, i, tail, norm_by(layer.post_norm, rows_of(pass.normed, 0, tail.rows))));
    if (flushes && i + 1 == next_flush) {
      CHORUS_TRY(batch.flush());
      next_flush += ++piece;
    }
    if (output.after_layer && !last) CHORUS_TRY(output.after_layer(batch, pass.x));
  }
  return {};
}

Status Model::finish_pass(Pass& pass, const PassOutput& output, const MutableView& tail) const {
  const auto count = static_cast<uint32_t>(output.rows.size());
  if (count == 0) return {};
  const compute::RowNorm norm = norm_by(final_norm_, rows_of(pass.normed, 0, count));
  if (output.after_layer) {
    CHORUS_TRY(pass.batch->rms_norm({tail, norm.weight, norm.epsilon, norm.form, norm.out}));
    CHORUS_TRY(output.after_layer(*pass.batch, norm.out));
  }
  if (!output.logits) return {};
  const MutableView out = view_of(output.logits, count, blueprint_.vocabulary, output.first_logits_row * blueprint_.vocabulary);
  return pass.batch->linear({tail, language_head_.get(), nullptr, out, LinearStore::overwrite, norm});
}

Status Model::run_pass(std::span<const PassStep> steps, const PassOutput& output) {
  CHORUS_TRY(fill_inputs(steps, output));
  CHORUS_ASSIGN(auto batch, backend_.begin_batch());
  Pass pass = begin_pass(steps, *batch);
  if (experts_) CHORUS_TRY(experts_->begin_pass(pass.rows));
  MutableView tail;
  Status done = run_layers(pass, output, tail);
  if (experts_) experts_->end_pass();
  CHORUS_TRY(std::move(done));
  CHORUS_TRY(finish_pass(pass, output, tail));
  CHORUS_TRY(batch->submit());
  for (const PassStep& step : steps) {
    step.sequence->length_ += pass.part_rows;
    step.sequence->current_ = 1 - step.sequence->current_;
  }
  return {};
}

Result<std::vector<std::vector<float>>> Model::hidden_states(std::span<const uint32_t> tokens) {
  CHORUS_ASSIGN(auto sequence, new_sequence(static_cast<uint32_t>(std::min<size_t>(tokens.size(), UINT32_MAX))));
  const SequenceStep step{sequence.get(), tokens};
  std::vector<SequenceState*> sequences;
  CHORUS_TRY(check_steps(std::span(&step, 1), sequences));
  CHORUS_TRY(make_workspace());
  std::vector<std::vector<float>> states;
  for (size_t done = 0; done < tokens.size(); done += rows_max_) {
    const auto piece = tokens.subspan(done, std::min<size_t>(rows_max_, tokens.size() - done));
    CHORUS_TRY(append_hidden_states({sequences[0], piece, static_cast<uint32_t>(tokens.size())}, states));
  }
  return states;
}

Status Model::append_hidden_states(const PassStep& step, std::vector<std::vector<float>>& states) {
  const uint64_t values = uint64_t{step.tokens.size()} * blueprint_.hidden;
  std::vector<BufferPtr> kept;
  PassOutput output;
  for (uint32_t i = 0; i < step.tokens.size(); ++i) output.rows.push_back(i);
  output.after_layer = [&](compute::Batch& batch, const MutableView& rows) -> Status {
    CHORUS_ASSIGN(BufferPtr copy, backend_.create_buffer(4 * values, "hidden state"));
    CHORUS_TRY(batch.copy({rows.buffer, 0, copy.get(), 0, 4 * values}));
    kept.push_back(std::move(copy));
    return {};
  };
  CHORUS_TRY(run_pass(std::span(&step, 1), output));
  states.resize(kept.size());
  for (size_t k = 0; k < kept.size(); ++k) {
    const size_t before = states[k].size();
    states[k].resize(before + values);
    CHORUS_TRY(backend_.read(*kept[k], 0, std::as_writable_bytes(std::span(states[k]).subspan(before))));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<LanguageModel>> LanguageModel::load(compute::Backend& backend, const Blueprint& blueprint,
                                                           const formats::WeightSource& weights, ExpertExecutor* experts,
                                                           const LanguageModelOptions& options) {
  auto model = std::make_unique<Model>(backend, blueprint, experts);
  CHORUS_TRY(model->bind(weights, options));
  return std::unique_ptr<LanguageModel>(std::move(model));
}

}  // namespace chorus::models
