// What a language model is made of, as data: sizes, the parts of each layer, and the names of its tensors. A family file
// (models/families/<family>.cpp) reads config.json into one; LanguageModel runs it; expert stores find experts by it.
// Must not know: a family's name, devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compute/backend.h"
#include "compute/ops.h"

namespace chorus::models {

// Rotary position embedding. Angles of position p: p * inverse_frequencies[i]; cosines and sines are multiplied by `factor` (YaRN).
struct RopeSpec {
  uint32_t rotary_dim = 0;
  compute::RopeForm form = compute::RopeForm::halves;
  std::vector<float> inverse_frequencies;  // rotary_dim / 2
  float factor = 1;
};

// A matrix [rows, cols] by the name of its tensor, with a bias of that name when not empty.
struct LinearSpec {
  std::string weight;
  std::string bias;
};

// Softmax attention with grouped queries.
struct AttentionSpec {
  using QueryKeyNorm = compute::QueryKeyNorm;
  uint32_t query_heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  LinearSpec q, k, v, o;
  bool output_gate = false;  // q gives, per head, query | gate; the output is multiplied by sigmoid(gate)
  QueryKeyNorm norm = QueryKeyNorm::none;
  std::string q_norm, k_norm;
  RopeSpec rope;
  uint32_t window = 0;  // keys a row sees, itself included; 0: all
  std::string sinks;    // f32 [query_heads]; empty: none
};

// Sparse attention's indexer (DeepSeek-V3.2).
struct IndexerSpec {
  uint32_t heads = 0, head_dim = 0, top_k = 0;
  std::string wq_b, wk, k_norm_weight, k_norm_bias, weights_proj;
  RopeSpec rope;
  float norm_epsilon = 1e-6f;
  bool shared = false;  // takes the choice of the layer before it that has an indexer of its own
};

// Multi-head latent attention (DeepSeek-V2): keys and values are made from one compressed row of kv_rank + rope_dim numbers.
struct LatentAttentionSpec {
  uint32_t heads = 0;
  uint32_t q_rank = 0;  // 0: queries come from the hidden row directly, by q_b
  uint32_t kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
  float scale = 0;
  LinearSpec q_a, q_b, kv_a, o;
  std::string q_a_norm, kv_a_norm, kv_b;
  float norm_epsilon = 1e-6f;
  RopeSpec rope;
  std::optional<IndexerSpec> indexer;
};

// GatedDeltaNet as Qwen3.5 has it.
struct DeltaSpec {
  compute::GatedDeltaShape shape;
  std::string in_qkv, in_z, in_b, in_a, conv, a_log, dt_bias, norm, out;
};

struct DenseSpec {
  uint32_t inner = 0;
  std::string gate, up, down;
};

// How one expert lies in the files. {E} in a name stands for the expert's index.
struct ExpertTensors {
  enum class Form {
    separate,     // gate, up [inner, hidden] and down [hidden, inner], one tensor each per expert
    fused,        // gate_up [experts, 2 * inner, hidden] (gate rows first) and down [experts, hidden, inner]
    interleaved,  // gate_up [experts, hidden, 2 * inner], columns gate, up, gate, up ...; down [experts, inner, hidden]; and biases
    mxfp4,        // as interleaved, but [experts, 2 * inner, hidden / 32, 16] blocks and [.., hidden / 32] scales, and the same for down
  };
  Form form = Form::separate;
  std::string gate, up, down;           // separate
  std::string gate_up;                  // fused, interleaved, mxfp4 (without _blocks and _scales); `down` likewise
  std::string gate_up_bias, down_bias;  // [experts, 2 * inner] (interleaved order), [experts, hidden]; empty: none
};

struct MoeSpec {
  uint32_t experts = 0, top_k = 0, inner = 0;
  LinearSpec router;
  std::string correction_bias;  // empty: none
  compute::RouterScore score = compute::RouterScore::softmax;
  uint32_t groups = 1, groups_kept = 1;
  bool renormalise = false;
  float scale = 1;
  compute::ExpertActivation activation = compute::ExpertActivation::swiglu;
  ExpertTensors tensors;
  DenseSpec shared;         // inner 0: none
  std::string shared_gate;  // [1, hidden]; empty: the shared expert counts fully
};

struct LayerSpec {
  std::string input_norm, post_norm;
  std::variant<AttentionSpec, LatentAttentionSpec, DeltaSpec> mixer;
  std::variant<DenseSpec, MoeSpec> feed_forward;
};

struct Blueprint {
  std::string model_type;  // as config.json says; for messages only
  uint32_t hidden = 0, vocabulary = 0, context = 0;
  float epsilon = 1e-6f;
  compute::NormWeight norm_form = compute::NormWeight::plain;
  std::string embedding, final_norm, language_head;  // language_head equals embedding when tied
  std::vector<LayerSpec> layers;
  std::vector<uint32_t> end_tokens;
  // Tensors of the files that start with one of these are not part of the model (vision, multi-token prediction).
  std::vector<std::string> ignored_prefixes;
};

}  // namespace chorus::models
