#include "models/qwen35.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/limits.h"

namespace chorus::models {

using compute::LinearStore;
using compute::MutableView;
using compute::View;
using formats::LayerType;
using formats::TextConfig;

namespace {

// Sizes that follow from the configuration. Columns of the concatenated projections, in elements.
struct Widths {
  uint32_t hidden, feed_forward;
  uint32_t delta_keys, delta_values, conv_channels, delta_in;  // delta_in: q|k|v | z | b | a
  uint32_t queries, kv;                                        // query_heads * head_dim, kv_heads * head_dim
  uint32_t wide;                                               // widest projection

  explicit Widths(const TextConfig& c)
      : hidden(c.hidden_size),
        feed_forward(c.intermediate_size),
        delta_keys(c.linear_key_heads * c.linear_key_dim),
        delta_values(c.linear_value_heads * c.linear_value_dim),
        conv_channels(2 * delta_keys + delta_values),
        delta_in(conv_channels + delta_values + 2 * c.linear_value_heads),
        queries(c.query_heads * c.head_dim),
        kv(c.kv_heads * c.head_dim),
        wide(std::max({delta_in, 2 * queries + 2 * kv, 2 * feed_forward})) {}

  // Second scratch: convolution output, feed-forward activation, or queries.
  uint32_t inner() const { return std::max({conv_channels, feed_forward, queries}); }
  uint32_t mixed() const { return std::max(delta_values, queries); }
  // f32 elements of workspace per row. Beside the buffers of a pass: the chunked delta rule's U, W and 64-wide score block, and a copy of
  // the widest row in another form, as backends make for a product.
  uint64_t row_elements(const TextConfig& c) const {
    const uint64_t delta_scratch = static_cast<uint64_t>(c.linear_value_heads) * (c.linear_key_dim + c.linear_value_dim + 64);
    return 2ull * hidden + wide + inner() + mixed() + 2ull * kv + delta_scratch + feed_forward;
  }
};

MutableView view(const BufferPtr& buffer, uint32_t rows, uint32_t cols, uint32_t stride = 0, uint64_t offset = 0) {
  return MutableView{buffer.get(), offset, rows, cols, stride == 0 ? cols : stride};
}

// Columns [first, first + count) of a view.
View columns(const MutableView& whole, uint32_t first, uint32_t count) {
  return View{whole.buffer, whole.offset + first, whole.rows, count, whole.stride};
}

std::vector<float> rotary_frequencies(const TextConfig& config) {
  std::vector<float> frequencies(config.rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.rotary_dim);
    frequencies[i] = 1.0f / std::pow(static_cast<float>(config.rope_theta), exponent);
  }
  return frequencies;
}

// Rows that one pass may have under a workspace budget and the backend's binding limit; 0 when not even one fits.
uint64_t pass_rows(const TextConfig& config, const compute::Backend& backend, uint64_t bytes_max, uint32_t rows_max) {
  const Widths w(config);
  uint64_t rows = std::min<uint64_t>(rows_max, bytes_max / (4 * w.row_elements(config)));
  rows = std::min<uint64_t>(rows, backend.info().binding_bytes_max / (4ull * w.wide));
  return rows >= 64 ? rows - rows % 64 : rows;  // whole chunks of the delta rule
}

}  // namespace

struct Qwen35::Workspace {
  BufferPtr ids, spans, outputs, cosine, sine;
  BufferPtr x, normed, wide, inner, mixed, own_k, own_v;
};

// Everything one pass needs; built by begin_pass from the first block of members.
struct Qwen35::Pass {
  std::span<const uint32_t> tokens;
  std::span<const uint32_t> lengths;
  std::span<const uint32_t> outputs;
  const SequenceState* source = nullptr;
  SequenceState* target = nullptr;                        // null: rows are read, nothing is written
  std::function<Status(const MutableView&)> after_layer;  // sees the residual stream

  uint32_t rows = 0;
  compute::Sequences sequences;
  std::unique_ptr<compute::Batch> batch;
  MutableView x, normed;
  View cosine, sine;
};

Qwen35::Qwen35(compute::Backend& backend, TextConfig config) : backend_(backend), config_(std::move(config)) {}
Qwen35::~Qwen35() = default;

Result<std::unique_ptr<Qwen35>> Qwen35::load(compute::Backend& backend, const TextConfig& config, const formats::WeightSource& weights,
                                             const LoadOptions& options) {
  std::unique_ptr<Qwen35> model(new Qwen35(backend, config));
  model->epsilon_ = static_cast<float>(config.rms_epsilon);
  model->inverse_frequencies_ = rotary_frequencies(config);
  model->rows_max_ = static_cast<uint32_t>(pass_rows(config, backend, options.workspace_bytes_max, options.rows_max));
  if (model->rows_max_ == 0) {
    return make_error(ErrorCode::out_of_memory, "workspace: one row needs " + std::to_string(4 * Widths(config).row_elements(config)) +
                                                    " bytes, the budget is " + std::to_string(options.workspace_bytes_max));
  }
  CHORUS_TRY(model->bind(weights, options));
  return model;
}

uint64_t Qwen35::weight_bytes(const TextConfig& config, const compute::Backend& backend, DType dtype) {
  const Widths w(config);
  uint64_t bytes = backend.weight_bytes(config.vocab_size, w.hidden, dtype);
  for (LayerType type : config.layer_types) {
    bytes += backend.weight_bytes(2 * w.feed_forward, w.hidden, dtype) + backend.weight_bytes(w.hidden, w.feed_forward, dtype);
    if (type == LayerType::full_attention) {
      bytes += backend.weight_bytes(2 * w.queries, w.hidden, dtype) + backend.weight_bytes(2 * w.kv, w.hidden, dtype) +
               backend.weight_bytes(w.hidden, w.queries, dtype);
    } else {
      bytes += backend.weight_bytes(w.delta_in, w.hidden, dtype) + backend.weight_bytes(w.hidden, w.delta_values, dtype);
    }
  }
  return bytes;
}

uint64_t Qwen35::workspace_bytes(const TextConfig& config, const compute::Backend& backend, uint64_t bytes_max, uint32_t rows_max) {
  return pass_rows(config, backend, bytes_max, rows_max) * 4 * Widths(config).row_elements(config);
}

uint64_t Qwen35::largest_buffer_bytes(const TextConfig& config, uint32_t capacity) {
  const Widths w(config);
  return 4 * std::max<uint64_t>(static_cast<uint64_t>(capacity) * w.kv, static_cast<uint64_t>(w.delta_values) * config.linear_key_dim);
}

std::vector<std::string_view> Qwen35::operations(const TextConfig& config) {
  const auto has = [&](LayerType type) { return std::ranges::find(config.layer_types, type) != config.layer_types.end(); };
  std::vector<std::string_view> names = {"embed", "rms_norm", "linear", "swiglu", "gather_rows"};
  if (has(LayerType::linear_attention)) names.insert(names.end(), {"causal_conv", "gated_delta", "gated_rms_norm"});
  if (has(LayerType::full_attention)) names.insert(names.end(), {"qk_norm_rope", "attention"});
  return names;
}

Status Qwen35::bind(const formats::WeightSource& weights, const LoadOptions& options) {
  const TextConfig& c = config_;
  const Widths w(c);
  WeightBinder binder(backend_, weights, options.dtype, options.progress, weight_bytes(c, backend_, options.dtype));
  CHORUS_ASSIGN(embedding_, binder.matrix("embed_tokens.weight", c.vocab_size, w.hidden));
  CHORUS_ASSIGN(final_norm_, binder.vector("norm.weight", w.hidden));
  if (options.language_head) {
    if (c.tie_word_embeddings) {
      language_head_ = embedding_;
    } else {
      CHORUS_ASSIGN(language_head_, binder.matrix("lm_head.weight", c.vocab_size, w.hidden));
    }
  }
  layers_.resize(c.layer_types.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const std::string prefix = "layers." + std::to_string(i) + ".";
    layer.is_attention = c.layer_types[i] == LayerType::full_attention;
    CHORUS_ASSIGN(layer.input_norm, binder.vector(prefix + "input_layernorm.weight", w.hidden));
    CHORUS_ASSIGN(layer.post_norm, binder.vector(prefix + "post_attention_layernorm.weight", w.hidden));
    if (layer.is_attention) {
      const std::string at = prefix + "self_attn.";
      AttentionLayer& a = layer.attention;
      CHORUS_ASSIGN(a.q_proj, binder.matrix(at + "q_proj.weight", 2 * w.queries, w.hidden));
      CHORUS_ASSIGN(a.kv_proj, binder.matrix(at + "kv_proj", {{at + "k_proj.weight", w.kv}, {at + "v_proj.weight", w.kv}}, w.hidden));
      CHORUS_ASSIGN(a.o_proj, binder.matrix(at + "o_proj.weight", w.hidden, w.queries));
      CHORUS_ASSIGN(a.q_norm, binder.vector(at + "q_norm.weight", c.head_dim));
      CHORUS_ASSIGN(a.k_norm, binder.vector(at + "k_norm.weight", c.head_dim));
    } else {
      const std::string at = prefix + "linear_attn.";
      DeltaLayer& d = layer.delta;
      CHORUS_ASSIGN(d.in_proj, binder.matrix(at + "in_proj",
                                             {{at + "in_proj_qkv.weight", w.conv_channels},
                                              {at + "in_proj_z.weight", w.delta_values},
                                              {at + "in_proj_b.weight", c.linear_value_heads},
                                              {at + "in_proj_a.weight", c.linear_value_heads}},
                                             w.hidden));
      CHORUS_ASSIGN(d.conv_weight, binder.values(at + "conv1d.weight", {w.conv_channels, 1, 4}, w.conv_channels, 4));
      CHORUS_ASSIGN(d.a_log, binder.vector(at + "A_log", c.linear_value_heads));
      CHORUS_ASSIGN(d.dt_bias, binder.vector(at + "dt_bias", c.linear_value_heads));
      CHORUS_ASSIGN(d.norm, binder.vector(at + "norm.weight", c.linear_value_dim));
      CHORUS_ASSIGN(d.out_proj, binder.matrix(at + "out_proj.weight", w.hidden, w.delta_values));
    }
    CHORUS_ASSIGN(
        layer.gate_up,
        binder.matrix(prefix + "mlp.gate_up",
                      {{prefix + "mlp.gate_proj.weight", w.feed_forward}, {prefix + "mlp.up_proj.weight", w.feed_forward}}, w.hidden));
    CHORUS_ASSIGN(layer.down, binder.matrix(prefix + "mlp.down_proj.weight", w.hidden, w.feed_forward));
  }
  return {};
}

Result<std::unique_ptr<SequenceState>> Qwen35::new_state(uint32_t capacity) const {
  const Widths w(config_);
  auto state = std::make_unique<SequenceState>();
  state->capacity_ = capacity;
  state->layers_.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    SequenceState::Layer& layer = state->layers_[i];
    if (layers_[i].is_attention) {
      const uint64_t bytes = 4ull * std::max(capacity, 1u) * w.kv;
      CHORUS_ASSIGN(layer.keys, backend_.create_buffer(bytes, "keys"));
      CHORUS_ASSIGN(layer.values, backend_.create_buffer(bytes, "values"));
      continue;
    }
    for (int slot = 0; slot < 2; ++slot) {
      CHORUS_ASSIGN(layer.conv_history[slot], backend_.create_buffer(4ull * 3 * w.conv_channels, "convolution history"));
      CHORUS_ASSIGN(layer.delta_state[slot], backend_.create_buffer(4ull * w.delta_values * config_.linear_key_dim, "delta state"));
    }
  }
  return state;
}

Result<std::unique_ptr<SequenceState>> Qwen35::clone_state(const SequenceState& state, uint32_t capacity) const {
  CHORUS_CHECK(capacity >= state.length_);
  const uint64_t kv_bytes = 4ull * state.length_ * Widths(config_).kv;
  CHORUS_ASSIGN(auto copy, new_state(capacity));
  CHORUS_ASSIGN(auto batch, backend_.begin_batch());
  auto copy_buffer = [&](const BufferPtr& from, const BufferPtr& to, uint64_t bytes) -> Status {
    if (!from || bytes == 0) return {};
    return batch->copy({from.get(), 0, to.get(), 0, bytes});
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    const SequenceState::Layer& from = state.layers_[i];
    SequenceState::Layer& to = copy->layers_[i];
    CHORUS_TRY(copy_buffer(from.keys, to.keys, kv_bytes));
    CHORUS_TRY(copy_buffer(from.values, to.values, kv_bytes));
    if (layers_[i].is_attention) continue;
    CHORUS_TRY(copy_buffer(from.conv_history[state.current_], to.conv_history[0], to.conv_history[0]->bytes()));
    CHORUS_TRY(copy_buffer(from.delta_state[state.current_], to.delta_state[0], to.delta_state[0]->bytes()));
  }
  CHORUS_TRY(batch->submit());
  copy->length_ = state.length_;
  return copy;
}

Result<StateValues> Qwen35::read_state(const SequenceState& state) const {
  StateValues tensors;
  auto append = [&](size_t layer, const char* part, const BufferPtr& buffer, uint64_t count) -> Status {
    if (count == 0) return {};
    StateTensor& tensor = tensors.emplace_back(StateTensor{"layer " + std::to_string(layer) + " " + part, std::vector<float>(count)});
    return backend_.read(*buffer, 0, std::as_writable_bytes(std::span(tensor.values)));
  };
  const uint64_t kv = static_cast<uint64_t>(state.length_) * Widths(config_).kv;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const SequenceState::Layer& layer = state.layers_[i];
    if (layers_[i].is_attention) {
      CHORUS_TRY(append(i, "keys", layer.keys, kv));
      CHORUS_TRY(append(i, "values", layer.values, kv));
    } else {
      const BufferPtr& history = layer.conv_history[state.current_];
      const BufferPtr& delta = layer.delta_state[state.current_];
      CHORUS_TRY(append(i, "convolution history", history, history->bytes() / 4));
      CHORUS_TRY(append(i, "delta state", delta, delta->bytes() / 4));
    }
  }
  return tensors;
}

uint64_t Qwen35::state_bytes(const TextConfig& config, uint32_t capacity) {
  const Widths w(config);
  uint64_t bytes = 0;
  for (LayerType type : config.layer_types) {
    bytes += type == LayerType::full_attention
                 ? 8ull * std::max(capacity, 1u) * w.kv
                 : 8ull * (3ull * w.conv_channels + static_cast<uint64_t>(w.delta_values) * config.linear_key_dim);
  }
  return bytes;
}

Status Qwen35::ensure_workspace() const {
  if (workspace_) return {};
  const Widths w(config_);
  auto space = std::make_unique<Workspace>();
  const uint64_t rows = rows_max_;
  auto make = [&](BufferPtr& target, uint64_t elements, const char* label) -> Status {
    CHORUS_ASSIGN(target, backend_.create_buffer(std::max<uint64_t>(elements, 4) * 4, label));
    return {};
  };
  CHORUS_TRY(make(space->ids, rows, "token ids"));
  CHORUS_TRY(make(space->spans, 2 * rows, "sequence spans"));
  CHORUS_TRY(make(space->outputs, rows, "output rows"));
  CHORUS_TRY(make(space->cosine, rows * config_.rotary_dim / 2, "cosines"));
  CHORUS_TRY(make(space->sine, rows * config_.rotary_dim / 2, "sines"));
  CHORUS_TRY(make(space->x, rows * w.hidden, "residual stream"));
  CHORUS_TRY(make(space->normed, rows * w.hidden, "normalised rows"));
  CHORUS_TRY(make(space->wide, rows * w.wide, "projections"));
  CHORUS_TRY(make(space->inner, rows * w.inner(), "inner activations"));
  CHORUS_TRY(make(space->mixed, rows * w.mixed(), "mixer output"));
  CHORUS_TRY(make(space->own_k, rows * w.kv, "row keys"));
  CHORUS_TRY(make(space->own_v, rows * w.kv, "row values"));
  workspace_ = std::move(space);
  return {};
}

Status Qwen35::begin_pass(Pass& pass) const {
  CHORUS_TRY(ensure_workspace());
  pass.rows = static_cast<uint32_t>(pass.tokens.size());
  CHORUS_CHECK(pass.rows > 0 && pass.rows <= rows_max_);
  const uint32_t half = config_.rotary_dim / 2;
  std::vector<uint32_t> spans;
  std::vector<float> cosine(static_cast<size_t>(pass.rows) * half), sine(cosine.size());
  uint32_t start = 0;
  for (uint32_t length : pass.lengths) {
    pass.sequences.spans.push_back({start, length});
    spans.insert(spans.end(), {start, length});
    CHORUS_CHECK(length > 0 && length <= pass.rows - start);
    for (uint32_t i = 0; i < length; ++i) {
      for (uint32_t j = 0; j < half; ++j) {
        const float angle = inverse_frequencies_[j] * static_cast<float>(pass.source->length_ + i);
        const size_t at = static_cast<size_t>(start + i) * half + j;
        cosine[at] = std::cos(angle);
        sine[at] = std::sin(angle);
      }
    }
    start += length;
  }
  CHORUS_CHECK(start == pass.rows);
  for (uint32_t token : pass.tokens) {
    if (token >= config_.vocab_size) {
      return make_error(ErrorCode::invalid_argument,
                        "token id " + std::to_string(token) + " is outside the vocabulary of " + std::to_string(config_.vocab_size));
    }
  }
  const Workspace& space = *workspace_;
  CHORUS_TRY(backend_.write(*space.ids, 0, std::as_bytes(pass.tokens)));
  CHORUS_TRY(backend_.write(*space.spans, 0, std::as_bytes(std::span<const uint32_t>(spans))));
  if (half > 0) {
    CHORUS_TRY(backend_.write(*space.cosine, 0, std::as_bytes(std::span<const float>(cosine))));
    CHORUS_TRY(backend_.write(*space.sine, 0, std::as_bytes(std::span<const float>(sine))));
  }
  if (!pass.outputs.empty()) CHORUS_TRY(backend_.write(*space.outputs, 0, std::as_bytes(pass.outputs)));
  pass.sequences.device = space.spans.get();
  pass.x = view(space.x, pass.rows, config_.hidden_size);
  pass.normed = view(space.normed, pass.rows, config_.hidden_size);
  pass.cosine = view(space.cosine, pass.rows, half);
  pass.sine = view(space.sine, pass.rows, half);
  CHORUS_ASSIGN(pass.batch, backend_.begin_batch());
  return {};
}

Status Qwen35::delta_mixer(Pass& pass, const DeltaLayer& layer, size_t index) const {
  const TextConfig& c = config_;
  const Widths w(c);
  const Workspace& space = *workspace_;
  compute::Batch& batch = *pass.batch;
  const SequenceState::Layer& before = pass.source->layers_[index];
  const uint32_t current = pass.source->current_;
  compute::Buffer* history_out = pass.target ? pass.target->layers_[index].conv_history[1 - current].get() : nullptr;
  compute::Buffer* state_out = pass.target ? pass.target->layers_[index].delta_state[1 - current].get() : nullptr;

  const MutableView projected = view(space.wide, pass.rows, w.delta_in);
  CHORUS_TRY(batch.linear({pass.normed, layer.in_proj.get(), nullptr, projected, LinearStore::overwrite}));
  const MutableView convolved = view(space.inner, pass.rows, w.conv_channels);
  CHORUS_TRY(batch.causal_conv({columns(projected, 0, w.conv_channels), layer.conv_weight.get(), before.conv_history[current].get(),
                                history_out, &pass.sequences, convolved}));
  const uint32_t z = w.conv_channels, b = z + w.delta_values, a = b + c.linear_value_heads;
  const MutableView mixed = view(space.mixed, pass.rows, w.delta_values);
  CHORUS_TRY(batch.gated_delta({{c.linear_key_heads, c.linear_value_heads, c.linear_key_dim, c.linear_value_dim},
                                convolved,
                                columns(projected, b, c.linear_value_heads),
                                columns(projected, a, c.linear_value_heads),
                                layer.a_log.get(),
                                layer.dt_bias.get(),
                                before.delta_state[current].get(),
                                state_out,
                                &pass.sequences,
                                mixed}));
  CHORUS_TRY(batch.gated_rms_norm({mixed, columns(projected, z, w.delta_values), layer.norm.get(), c.linear_value_dim, epsilon_, mixed}));
  return batch.linear({mixed, layer.out_proj.get(), nullptr, pass.x, LinearStore::add});
}

// Projects keys and values (and queries unless keys_only) of the pass's rows; they go to the state being written, or to the workspace.
Status Qwen35::project_attention(Pass& pass, const AttentionLayer& layer, size_t index, bool keys_only,
                                 compute::AttentionArgs& args) const {
  const TextConfig& c = config_;
  const Widths w(c);
  const Workspace& space = *workspace_;
  const uint32_t prefix = pass.source->length_;
  const SequenceState::Layer& before = pass.source->layers_[index];

  const MutableView q_gate = view(space.wide, pass.rows, 2 * w.queries);
  const MutableView kv = view(space.wide, pass.rows, 2 * w.kv, 0, static_cast<uint64_t>(pass.rows) * 2 * w.queries);
  const MutableView queries = view(space.inner, pass.rows, w.queries);
  MutableView own_k = view(space.own_k, pass.rows, w.kv), own_v = view(space.own_v, pass.rows, w.kv);
  if (pass.target) {
    const SequenceState::Layer& after = pass.target->layers_[index];
    own_k = view(after.keys, pass.rows, w.kv, 0, static_cast<uint64_t>(prefix) * w.kv);
    own_v = view(after.values, pass.rows, w.kv, 0, static_cast<uint64_t>(prefix) * w.kv);
  }
  if (!keys_only) CHORUS_TRY(pass.batch->linear({pass.normed, layer.q_proj.get(), nullptr, q_gate, LinearStore::overwrite}));
  CHORUS_TRY(pass.batch->linear({pass.normed, layer.kv_proj.get(), nullptr, kv, LinearStore::overwrite}));
  const compute::AttentionShape shape{c.query_heads, c.kv_heads, c.head_dim};
  CHORUS_TRY(pass.batch->qk_norm_rope({shape, c.rotary_dim, epsilon_, keys_only ? View{} : View(q_gate), kv, layer.q_norm.get(),
                                       layer.k_norm.get(), pass.cosine, pass.sine, keys_only ? MutableView{} : queries, own_k, own_v}));
  args = {shape,
          1.0f / std::sqrt(static_cast<float>(c.head_dim)),
          queries,
          q_gate,
          view(before.keys, prefix, w.kv),
          view(before.values, prefix, w.kv),
          own_k,
          own_v,
          &pass.sequences,
          view(space.mixed, pass.rows, w.queries)};
  return {};
}

Status Qwen35::attention_mixer(Pass& pass, const AttentionLayer& layer, size_t index) const {
  compute::AttentionArgs args;
  CHORUS_TRY(project_attention(pass, layer, index, false, args));
  CHORUS_TRY(pass.batch->attention(args));
  return pass.batch->linear({args.out, layer.o_proj.get(), nullptr, pass.x, LinearStore::add});
}

Status Qwen35::mlp(Pass& pass, const Layer& layer, const MutableView& x) const {
  const uint32_t inner = config_.intermediate_size;
  const MutableView normed = view(workspace_->normed, x.rows, config_.hidden_size);
  const MutableView gate_up = view(workspace_->wide, x.rows, 2 * inner);
  const MutableView activated = view(workspace_->inner, x.rows, inner);
  CHORUS_TRY(pass.batch->rms_norm({x, layer.post_norm.get(), epsilon_, compute::NormWeight::one_plus, normed}));
  CHORUS_TRY(pass.batch->linear({normed, layer.gate_up.get(), nullptr, gate_up, LinearStore::overwrite}));
  CHORUS_TRY(pass.batch->swiglu({gate_up, activated}));
  return pass.batch->linear({activated, layer.down.get(), nullptr, x, LinearStore::add});
}

// The last layer of a pass that returns no rows only has to leave its state behind.
Status Qwen35::last_layer_state_only(Pass& pass, const Layer& layer, size_t index) const {
  if (!layer.is_attention) return delta_mixer(pass, layer.delta, index);
  compute::AttentionArgs unused;
  return project_attention(pass, layer.attention, index, true, unused);
}

Result<BufferPtr> Qwen35::run_pass(Pass& pass) const {
  CHORUS_TRY(begin_pass(pass));
  compute::Batch& batch = *pass.batch;
  CHORUS_TRY(batch.embed({workspace_->ids.get(), embedding_.get(), pass.x}));
  if (pass.after_layer) CHORUS_TRY(pass.after_layer(pass.x));
  const uint32_t output_count = static_cast<uint32_t>(pass.outputs.size());
  MutableView tail = pass.x;  // the rows that go on after the last mixer
  BufferPtr selected, hidden;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const bool last = i + 1 == layers_.size();
    CHORUS_TRY(batch.rms_norm({pass.x, layer.input_norm.get(), epsilon_, compute::NormWeight::one_plus, pass.normed}));
    if (last && output_count == 0) {
      CHORUS_TRY(last_layer_state_only(pass, layer, i));
      break;
    }
    CHORUS_TRY(layer.is_attention ? attention_mixer(pass, layer.attention, i) : delta_mixer(pass, layer.delta, i));
    if (last) {
      CHORUS_ASSIGN(selected, backend_.create_buffer(4ull * output_count * config_.hidden_size, "output rows"));
      tail = view(selected, output_count, config_.hidden_size);
      CHORUS_TRY(batch.gather_rows({pass.x, workspace_->outputs.get(), tail}));
    }
    CHORUS_TRY(mlp(pass, layer, tail));
    if (pass.after_layer && !last) CHORUS_TRY(pass.after_layer(pass.x));
  }
  if (output_count > 0) {
    CHORUS_ASSIGN(hidden, backend_.create_buffer(4ull * output_count * config_.hidden_size, "hidden rows"));
    CHORUS_TRY(batch.rms_norm(
        {tail, final_norm_.get(), epsilon_, compute::NormWeight::one_plus, view(hidden, output_count, config_.hidden_size)}));
  }
  CHORUS_TRY(batch.submit());
  return hidden;
}

void Qwen35::seal(SequenceState& state) {
  state.sealed_ = true;
  for (SequenceState::Layer& layer : state.layers_) {
    layer.conv_history[1 - state.current_].reset();
    layer.delta_state[1 - state.current_].reset();
  }
}

Result<BufferPtr> Qwen35::advance(SequenceState& state, std::span<const uint32_t> tokens, std::span<const uint32_t> outputs) const {
  if (state.sealed_) return make_error(ErrorCode::invalid_argument, "sequence state: it was sealed, so it cannot read more tokens");
  if (tokens.size() > state.capacity_ - state.length_) {
    return make_error(ErrorCode::limit_exceeded, "sequence state: room for " + std::to_string(state.capacity_ - state.length_) +
                                                     " more tokens, asked for " + std::to_string(tokens.size()));
  }
  const uint64_t row_bytes = 4ull * config_.hidden_size;
  BufferPtr all;
  if (!outputs.empty()) {
    CHORUS_CHECK(outputs.back() < tokens.size() && std::is_sorted(outputs.begin(), outputs.end()));
    if (tokens.size() > rows_max_) {
      CHORUS_ASSIGN(all, backend_.create_buffer(outputs.size() * row_bytes, "hidden rows"));
    }
  }
  // Passes of about equal size: a short last one would leave most of a wide device idle.
  const size_t passes = (tokens.size() + rows_max_ - 1) / rows_max_;
  const size_t even = passes == 0 ? 0 : ((tokens.size() + passes - 1) / passes + 63) / 64 * 64;
  const size_t pass_rows_now = std::min<size_t>(even, rows_max_);
  size_t next_output = 0;
  for (size_t done = 0; done < tokens.size();) {
    const uint32_t rows = static_cast<uint32_t>(std::min<size_t>(pass_rows_now, tokens.size() - done));
    std::vector<uint32_t> piece_outputs;
    const size_t first_output = next_output;
    for (; next_output < outputs.size() && outputs[next_output] < done + rows; ++next_output) {
      piece_outputs.push_back(outputs[next_output] - static_cast<uint32_t>(done));
    }
    Pass pass;
    pass.tokens = tokens.subspan(done, rows);
    pass.lengths = std::span<const uint32_t>(&rows, 1);
    pass.outputs = piece_outputs;
    pass.source = &state;
    pass.target = &state;
    CHORUS_ASSIGN(BufferPtr hidden, run_pass(pass));
    state.length_ += rows;
    state.current_ = 1 - state.current_;
    done += rows;
    if (!hidden) continue;
    if (!all) return hidden;
    CHORUS_ASSIGN(auto batch, backend_.begin_batch());
    CHORUS_TRY(batch->copy({hidden.get(), 0, all.get(), first_output * row_bytes, piece_outputs.size() * row_bytes}));
    CHORUS_TRY(batch->submit());
  }
  return all;
}

Result<BufferPtr> Qwen35::read_rows(const SequenceState& prefix, const PassInput& input, std::span<const uint32_t> outputs) const {
  if (input.tokens.size() > rows_max_) {
    return make_error(ErrorCode::limit_exceeded,
                      "rows of one pass: at most " + std::to_string(rows_max_) + " tokens, found " + std::to_string(input.tokens.size()));
  }
  CHORUS_CHECK(!outputs.empty() && outputs.size() <= rows_max_);
  Pass pass;
  pass.tokens = input.tokens;
  pass.lengths = input.lengths;
  pass.outputs = outputs;
  pass.source = &prefix;
  return run_pass(pass);
}

Result<std::vector<float>> Qwen35::logits(const compute::Buffer& hidden, uint32_t rows) const {
  if (!language_head_) return make_error(ErrorCode::invalid_argument, "logits: the model was loaded without its language head");
  CHORUS_ASSIGN(BufferPtr out, backend_.create_buffer(4ull * rows * config_.vocab_size, "logits"));
  CHORUS_ASSIGN(auto batch, backend_.begin_batch());
  const View x{&hidden, 0, rows, config_.hidden_size, config_.hidden_size};
  CHORUS_TRY(batch->linear({x, language_head_.get(), nullptr, view(out, rows, config_.vocab_size), LinearStore::overwrite}));
  CHORUS_TRY(batch->submit());
  std::vector<float> values(static_cast<size_t>(rows) * config_.vocab_size);
  CHORUS_TRY(backend_.read(*out, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

Result<std::vector<std::vector<float>>> Qwen35::hidden_states(std::span<const uint32_t> tokens) const {
  CHORUS_ASSIGN(auto state, new_state(static_cast<uint32_t>(std::min<size_t>(tokens.size(), UINT32_MAX))));
  std::vector<std::vector<float>> states;
  for (size_t done = 0; done < tokens.size(); done += rows_max_) {
    CHORUS_TRY(append_hidden_states(*state, tokens.subspan(done, std::min<size_t>(rows_max_, tokens.size() - done)), states));
  }
  return states;
}

Status Qwen35::append_hidden_states(SequenceState& state, std::span<const uint32_t> tokens, std::vector<std::vector<float>>& states) const {
  const auto rows = static_cast<uint32_t>(tokens.size());
  const uint64_t values = uint64_t{rows} * config_.hidden_size;
  std::vector<uint32_t> all(rows);
  for (uint32_t i = 0; i < rows; ++i) all[i] = i;
  std::vector<BufferPtr> kept;
  Pass pass;
  pass.tokens = tokens;
  pass.lengths = std::span<const uint32_t>(&rows, 1);
  pass.outputs = all;
  pass.source = &state;
  pass.target = &state;
  pass.after_layer = [&](const MutableView& x) -> Status {
    CHORUS_ASSIGN(BufferPtr copy, backend_.create_buffer(4 * values, "hidden state"));
    CHORUS_TRY(pass.batch->copy({x.buffer, 0, copy.get(), 0, 4 * values}));
    kept.push_back(std::move(copy));
    return {};
  };
  CHORUS_ASSIGN(BufferPtr last, run_pass(pass));
  kept.push_back(std::move(last));
  state.length_ += rows;
  state.current_ = 1 - state.current_;
  states.resize(kept.size());
  for (size_t k = 0; k < kept.size(); ++k) {
    const size_t before = states[k].size();
    states[k].resize(before + values);
    CHORUS_TRY(backend_.read(*kept[k], 0, std::as_writable_bytes(std::span(states[k]).subspan(before))));
  }
  return {};
}

}  // namespace chorus::models
