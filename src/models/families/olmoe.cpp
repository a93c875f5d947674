// OLMoE (Muennighoff et al. 2024): every layer has experts, chosen by softmax without renormalisation; queries and keys are normed over
// the whole row before they are cut into heads.
#include "models/families/family.h"

namespace chorus::models::families {

Result<Blueprint> read_olmoe(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_TRY(config.require_missing("clip_qkv"));
  CHORUS_ASSIGN(AttentionSpec attention, read_attention(config));
  attention.norm = AttentionSpec::QueryKeyNorm::whole_row;
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", false));
  CHORUS_ASSIGN(MoeSpec moe, read_moe(config, {"num_experts", "num_local_experts"}, "intermediate_size"));
  CHORUS_ASSIGN(moe.renormalise, config.flag_or("norm_topk_prob", false));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string at = names.layer(i) + "mlp.";
    blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", bias, bias);
    moe.router.weight = at + "gate.weight";
    moe.tensors = name_experts(names, at + "experts.");
    blueprint.layers[i].feed_forward = moe;
  }
  return blueprint;
}

}  // namespace chorus::models::families
