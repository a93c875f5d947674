// Qwen3.5 / Qwen3.8 dense text backbone (`qwen3_5_text`): GatedDeltaNet and gated-attention layers, written once over compute::Batch.
// Owns: weight binding, sequence state, the forward pass. Must not know: devices, files' formats beyond WeightSource, questions.
// Reference: Hugging Face transformers 5.17, modeling_qwen3_5 (formulas only).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/checkpoint.h"
#include "formats/config.h"
#include "models/layers/weight_binder.h"

namespace chorus::models {

struct LoadOptions {
  DType dtype = DType::f32;                     // of matrices; vectors are f32 always
  bool language_head = false;                   // also bind what `logits` needs
  uint64_t workspace_bytes_max = 170ull << 20;  // bounds the rows of one pass
  uint32_t rows_max = 2048;                     // rows of one pass, at most
  LoadProgress progress;
};

// What one sequence has left behind in every layer. Immutable once shared as a prefix.
class SequenceState {
 public:
  uint32_t length() const { return length_; }      // tokens read
  uint32_t capacity() const { return capacity_; }  // tokens that fit the key/value buffers

 private:
  friend class Qwen35;
  struct Layer {
    BufferPtr conv_history[2];  // f32 [3, conv channels]; [current_] is live, the other receives the next
    BufferPtr delta_state[2];   // f32 [value heads, key dim, value dim]
    BufferPtr keys, values;     // f32 [capacity, kv heads * head dim]
  };
  std::vector<Layer> layers_;
  uint32_t length_ = 0;
  uint32_t capacity_ = 0;
  uint32_t current_ = 0;
  bool sealed_ = false;
};

// One tensor of a state, named by its layer and part: "layer 3 keys".
struct StateTensor {
  std::string name;
  std::vector<float> values;
  bool operator==(const StateTensor&) const = default;
};
// Per layer convolution history and delta state, or keys and values.
using StateValues = std::vector<StateTensor>;

// One pass: `tokens` are sequences laid end to end (`lengths` sums to tokens.size()), each continuing the same state.
struct PassInput {
  std::span<const uint32_t> tokens;
  std::span<const uint32_t> lengths;
};

class Qwen35 {
 public:
  static Result<std::unique_ptr<Qwen35>> load(compute::Backend& backend, const formats::TextConfig& config,
                                              const formats::WeightSource& weights, const LoadOptions& options);

  ~Qwen35();

  const formats::TextConfig& config() const { return config_; }
  compute::Backend& backend() const { return backend_; }
  // Rows that one pass may have (memory plan and binding limits). At least 1.
  uint32_t pass_rows_max() const { return rows_max_; }

  // An empty sequence with room for `capacity` tokens. Errors: out_of_memory, limit_exceeded.
  Result<std::unique_ptr<SequenceState>> new_state(uint32_t capacity) const;
  // A private copy with room for `capacity` >= length tokens.
  Result<std::unique_ptr<SequenceState>> clone_state(const SequenceState& state, uint32_t capacity) const;
  // Everything that later tokens depend on, layer after layer. For tests and debugging; the values are copied to the host.
  Result<StateValues> read_state(const SequenceState& state) const;
  // For memory plans, without loading anything.
  static uint64_t state_bytes(const formats::TextConfig& config, uint32_t capacity);
  static uint64_t weight_bytes(const formats::TextConfig& config, const compute::Backend& backend, DType dtype);
  static uint64_t workspace_bytes(const formats::TextConfig& config, const compute::Backend& backend, uint64_t bytes_max,
                                  uint32_t rows_max);
  static uint64_t largest_buffer_bytes(const formats::TextConfig& config, uint32_t capacity);
  // Names of the operations that its passes consist of, as Backend::variants takes them. Copies are none.
  static std::vector<std::string_view> operations(const formats::TextConfig& config);

  // Reads `tokens` (any number; split into passes) into the state. With `outputs`, also returns the final-norm hidden rows of the
  // token indices listed there (ascending, relative to `tokens`): f32 [outputs.size(), hidden].
  // On an error the state is unusable and must be dropped.
  Result<BufferPtr> advance(SequenceState& state, std::span<const uint32_t> tokens, std::span<const uint32_t> outputs) const;

  // Frees what only further tokens would need; the state can then be read and cloned, but not advanced.
  static void seal(SequenceState& state);

  // Reads several sequences from one shared state, writing none of it. Returns the final-norm hidden rows at `outputs`
  // (indices into input.tokens): f32 [outputs.size(), hidden]. input.tokens.size() <= pass_rows_max().
  Result<BufferPtr> read_rows(const SequenceState& prefix, const PassInput& input, std::span<const uint32_t> outputs) const;

  // Next-token logits of hidden rows: f32 [rows, vocabulary]. Needs LoadOptions::language_head.
  Result<std::vector<float>> logits(const compute::Buffer& hidden, uint32_t rows) const;

  // For references: hidden states after the embedding, each layer, and the final norm, of every token: [tokens, hidden] each.
  Result<std::vector<std::vector<float>>> hidden_states(std::span<const uint32_t> tokens) const;

 private:
  struct DeltaLayer {
    WeightPtr in_proj;  // rows: q|k|v channels, z, b, a
    BufferPtr conv_weight, a_log, dt_bias, norm;
    WeightPtr out_proj;
  };
  struct AttentionLayer {
    WeightPtr q_proj, kv_proj, o_proj;
    BufferPtr q_norm, k_norm;
  };
  struct Layer {
    bool is_attention = false;
    BufferPtr input_norm, post_norm;
    DeltaLayer delta;
    AttentionLayer attention;
    WeightPtr gate_up, down;
  };
  struct Workspace;
  struct Pass;

  Qwen35(compute::Backend& backend, formats::TextConfig config);
  Status bind(const formats::WeightSource& weights, const LoadOptions& options);
  Status ensure_workspace() const;
  Status begin_pass(Pass& pass) const;
  Result<BufferPtr> run_pass(Pass& pass) const;
  Status append_hidden_states(SequenceState& state, std::span<const uint32_t> tokens, std::vector<std::vector<float>>& states) const;
  Status delta_mixer(Pass& pass, const DeltaLayer& layer, size_t index) const;
  Status attention_mixer(Pass& pass, const AttentionLayer& layer, size_t index) const;
  Status project_attention(Pass& pass, const AttentionLayer& layer, size_t index, bool keys_only, compute::AttentionArgs& args) const;
  Status last_layer_state_only(Pass& pass, const Layer& layer, size_t index) const;
  Status mlp(Pass& pass, const Layer& layer, const compute::MutableView& x) const;

  compute::Backend& backend_;
  formats::TextConfig config_;
  WeightPtr embedding_, language_head_;
  BufferPtr final_norm_;
  std::vector<Layer> layers_;
  std::vector<float> inverse_frequencies_;
  float epsilon_ = 0;
  uint32_t rows_max_ = 1;
  mutable std::unique_ptr<Workspace> workspace_;  // made by the first pass
};

}  // namespace chorus::models
