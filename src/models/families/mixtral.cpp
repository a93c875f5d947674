// Mixtral (Jiang et al. 2024): Llama with experts in every layer; softmax over the chosen two.
#include "models/families/family.h"

namespace chorus::models::families {

Result<Blueprint> read_mixtral(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_ASSIGN(AttentionSpec attention, read_attention(config, {1e6, 1}));
  CHORUS_ASSIGN(attention.window, config.size_or("sliding_window", 0, 1, INT32_MAX));
  CHORUS_ASSIGN(MoeSpec moe, read_moe(config, {"num_local_experts", "num_experts"}, "intermediate_size"));
  moe.renormalise = true;  // softmax over all, divided by the sum of the chosen: the same as softmax over the chosen
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string at = names.layer(i) + "block_sparse_moe.";
    blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", false, false);
    moe.router.weight = at + "gate.weight";
    moe.tensors = name_experts(names, at + "experts.", "w1", "w3", "w2");
    blueprint.layers[i].feed_forward = moe;
  }
  return blueprint;
}

}  // namespace chorus::models::families
