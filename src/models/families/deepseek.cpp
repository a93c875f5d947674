// DeepSeek-V3 (DeepSeek-AI 2024), which is also Kimi K2, with its multi-head latent attention; DeepSeek-V3.2 (2025), which adds sparse
// attention by an indexer; and GLM-5, which is V3.2 with layers that share the choice of the layer before them.
#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "models/families/family.h"

namespace chorus::models::families {

namespace {

// These norms have the default of the reference's module, whatever rms_norm_eps says.
constexpr float kLatentEpsilon = 1e-6f;

Result<LatentAttentionSpec> read_latent_attention(const ConfigReader& config) {
  LatentAttentionSpec spec;
  CHORUS_ASSIGN(spec.heads, config.size("num_attention_heads"));
  CHORUS_ASSIGN(spec.q_rank, config.size_or("q_lora_rank", 0));
  CHORUS_ASSIGN(spec.kv_rank, config.size("kv_lora_rank"));
  CHORUS_ASSIGN(spec.nope_dim, config.size("qk_nope_head_dim"));
  CHORUS_ASSIGN(spec.rope_dim, config.size("qk_rope_head_dim"));
  CHORUS_ASSIGN(spec.value_dim, config.size("v_head_dim"));
  const uint64_t widest = uint64_t{spec.nope_dim} + spec.value_dim + spec.rope_dim + spec.kv_rank;
  CHORUS_TRY(config.product("num_attention_heads x (kv_lora_rank + head dimensions)", spec.heads, widest));
  spec.norm_epsilon = kLatentEpsilon;
  CHORUS_ASSIGN(const bool pairs, config.flag_or("rope_interleave", true));
  CHORUS_ASSIGN(spec.rope, read_rope(config, spec.rope_dim, pairs ? compute::RopeForm::pairs : compute::RopeForm::halves));
  CHORUS_ASSIGN(const double yarn, read_yarn_scale(config));
  spec.scale = static_cast<float>(yarn / std::sqrt(static_cast<double>(spec.nope_dim + spec.rope_dim)));
  return spec;
}

LatentAttentionSpec name_latent_attention(LatentAttentionSpec spec, const std::string& at, bool bias) {
  const auto linear = [&](const char* name, bool with_bias) {
    return LinearSpec{at + name + ".weight", with_bias ? at + name + ".bias" : std::string()};
  };
  if (spec.q_rank > 0) {
    spec.q_a = linear("q_a_proj", bias);
    spec.q_a_norm = at + "q_a_layernorm.weight";
    spec.q_b = linear("q_b_proj", false);
  } else {
    spec.q_b = linear("q_proj", false);
  }
  spec.kv_a = linear("kv_a_proj_with_mqa", bias);
  spec.kv_a_norm = at + "kv_a_layernorm.weight";
  spec.kv_b = at + "kv_b_proj.weight";
  spec.o = linear("o_proj", bias);
  return spec;
}

Result<IndexerSpec> read_indexer(const ConfigReader& config, const RopeSpec& rope, compute::RopeForm form) {
  IndexerSpec spec;
  CHORUS_ASSIGN(spec.heads, config.size("index_n_heads"));
  CHORUS_ASSIGN(spec.head_dim, config.size("index_head_dim"));
  CHORUS_ASSIGN(spec.top_k, config.size("index_topk"));
  CHORUS_TRY(config.product("index_n_heads x index_head_dim", spec.heads, spec.head_dim));
  if (rope.rotary_dim > spec.head_dim) {
    return config.invalid("index_head_dim", "expected at least qk_rope_head_dim " + std::to_string(rope.rotary_dim) + ", found " +
                                                std::to_string(spec.head_dim));
  }
  spec.rope = rope;
  spec.rope.form = form;
  return spec;
}

IndexerSpec name_indexer(IndexerSpec spec, const std::string& at) {
  if (spec.shared) return spec;
  spec.wq_b = at + "wq_b.weight";
  spec.wk = at + "wk.weight";
  spec.k_norm_weight = at + "k_norm.weight";
  spec.k_norm_bias = at + "k_norm.bias";
  spec.weights_proj = at + "weights_proj.weight";
  return spec;
}

// Attention of every layer, experts, and what is ignored.
Result<Blueprint> read_latent_model(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_ASSIGN(const LatentAttentionSpec attention, read_latent_attention(config));
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", false));
  CHORUS_TRY(config.require_flag("mlp_bias", false));
  for (size_t i = 0; i < blueprint.layers.size(); ++i)
    blueprint.layers[i].mixer = name_latent_attention(attention, names.layer(i) + "self_attn.", bias);
  CHORUS_ASSIGN(const SigmoidMoe moe, read_sigmoid_moe(config, blueprint.layers.size()));
  place_sigmoid_moe(moe, names, blueprint);
  CHORUS_TRY(ignore_prediction_layers(config, names, blueprint));
  return blueprint;
}

Status add_indexers(const ConfigReader& config, const Names& names, compute::RopeForm form, const std::vector<bool>& shared,
                    Blueprint& blueprint) {
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    auto& attention = std::get<LatentAttentionSpec>(blueprint.layers[i].mixer);
    if (attention.q_rank == 0) return config.unsupported("q_lora_rank", "an indexer on compressed queries only", "no q_lora_rank");
    CHORUS_ASSIGN(IndexerSpec indexer, read_indexer(config, attention.rope, form));
    indexer.shared = shared[i];
    attention.indexer = name_indexer(std::move(indexer), names.layer(i) + "self_attn.indexer.");
  }
  return {};
}

// "full" or "shared" for each layer; from indexer_types, a pattern of F and S, or every `index_topk_freq`-th layer.
Result<std::vector<bool>> read_shared_layers(const ConfigReader& config, size_t layers) {
  std::vector<bool> shared(layers, false);
  std::vector<std::string> types;
  std::string_view key = "indexer_types";
  if (config.has(key)) {
    CHORUS_ASSIGN(types, config.texts(key));
  } else if (config.has("index_topk_pattern")) {
    key = "index_topk_pattern";
    CHORUS_ASSIGN(const std::string pattern, config.text_or(key, ""));
    for (const char mark : pattern) types.push_back(mark == 'F' ? "full" : mark == 'S' ? "shared" : std::string(1, mark));
  } else {
    CHORUS_ASSIGN(const uint32_t step, config.size_or("index_topk_freq", 1, 0, INT32_MAX));
    CHORUS_ASSIGN(const uint32_t offset, config.size_or("index_skip_topk_offset", 2, 0, INT32_MAX));
    for (size_t i = 0; i < layers; ++i) {
      const uint64_t past = i + 1 > offset ? i + 1 - offset : 0;
      types.push_back(past % std::max(step, 1u) == 0 ? "full" : "shared");
    }
  }
  if (types.size() != layers) {
    return config.invalid(key, "expected one of each of the " + std::to_string(layers) + " layers, found " + std::to_string(types.size()));
  }
  for (size_t i = 0; i < layers; ++i) {
    if (types[i] != "full" && types[i] != "shared") return config.unsupported(key, "\"full\" and \"shared\"", quote_text(types[i]));
    shared[i] = types[i] == "shared";
  }
  if (shared[0]) return config.invalid(key, "the first layer has no layer before it whose choice it could share");
  return shared;
}

}  // namespace

Result<Blueprint> read_deepseek_v3(const ConfigReader& config, const Names& names) { return read_latent_model(config, names); }

Result<Blueprint> read_deepseek_v32(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_latent_model(config, names));
  const std::vector<bool> none_shared(blueprint.layers.size(), false);
  CHORUS_TRY(add_indexers(config, names, compute::RopeForm::halves, none_shared, blueprint));
  return blueprint;
}

Result<Blueprint> read_glm_moe_dsa(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_latent_model(config, names));
  CHORUS_ASSIGN(const auto shared, read_shared_layers(config, blueprint.layers.size()));
  CHORUS_TRY(add_indexers(config, names, compute::RopeForm::pairs, shared, blueprint));
  return blueprint;
}

}  // namespace chorus::models::families
