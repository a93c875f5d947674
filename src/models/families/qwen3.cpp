// Qwen3 (Qwen Team 2025), dense and with experts: Llama with an RMSNorm on each head's queries and keys. The layers with experts choose by
// softmax over all experts.
#include <algorithm>

#include "models/families/family.h"

namespace chorus::models::families {

namespace {

Result<AttentionSpec> read_normed_attention(const ConfigReader& config) {
  CHORUS_ASSIGN(AttentionSpec attention, read_attention(config));
  attention.norm = AttentionSpec::QueryKeyNorm::per_head;
  return attention;
}

// Windows of the dense model: by layer_types, else from max_window_layers on.
Result<std::vector<uint32_t>> read_dense_windows(const ConfigReader& config, size_t layers) {
  CHORUS_ASSIGN(const bool sliding, config.flag_or("use_sliding_window", false));
  CHORUS_ASSIGN(std::vector<uint32_t> windows, read_windows(config, layers));
  if (!windows.empty()) return windows;
  windows.resize(layers, 0);
  if (!sliding) return windows;
  CHORUS_ASSIGN(const uint32_t window, config.size("sliding_window", 1, INT32_MAX));
  CHORUS_ASSIGN(const uint32_t first, config.size_or("max_window_layers", 28, 0, INT32_MAX));
  for (size_t i = first; i < layers; ++i) windows[i] = window;
  return windows;
}

}  // namespace

Result<Blueprint> read_qwen3(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_ASSIGN(AttentionSpec attention, read_normed_attention(config));
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", false));
  CHORUS_ASSIGN(const auto windows, read_dense_windows(config, blueprint.layers.size()));
  CHORUS_ASSIGN(const uint32_t inner, config.size("intermediate_size", 1, limits::kModelDimensionMax / 2));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    attention.window = windows[i];
    blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", bias, bias);
    blueprint.layers[i].feed_forward = name_dense(names.layer(i) + "mlp.", inner);
  }
  return blueprint;
}

Result<Blueprint> read_qwen3_moe(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_ASSIGN(AttentionSpec attention, read_normed_attention(config));
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", false));
  CHORUS_ASSIGN(const bool sliding, config.flag_or("use_sliding_window", false));
  if (sliding) {
    CHORUS_ASSIGN(attention.window, config.size("sliding_window", 1, INT32_MAX));
  }
  CHORUS_ASSIGN(MoeSpec moe, read_moe(config, {"num_experts", "num_local_experts"}, "moe_intermediate_size"));
  CHORUS_ASSIGN(moe.renormalise, config.flag_or("norm_topk_prob", false));
  CHORUS_ASSIGN(const auto dense_layers, config.sizes("mlp_only_layers", INT32_MAX));
  CHORUS_ASSIGN(const uint32_t step, config.size_or("decoder_sparse_step", 1, 1, INT32_MAX));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string at = names.layer(i) + "mlp.";
    blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", bias, bias);
    const bool dense = std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end() || (i + 1) % step != 0;
    if (dense) {
      CHORUS_ASSIGN(const uint32_t inner, config.size("intermediate_size", 1, limits::kModelDimensionMax / 2));
      blueprint.layers[i].feed_forward = name_dense(at, inner);
      continue;
    }
    moe.router.weight = at + "gate.weight";
    moe.tensors = name_experts(names, at + "experts.");
    blueprint.layers[i].feed_forward = moe;
  }
  return blueprint;
}

}  // namespace chorus::models::families
