// GLM-4.5 (GLM-4.5 Team 2025): grouped-query attention with rotary embeddings on half of a head, DeepSeek-V3's routing of experts.
#include "models/families/family.h"

namespace chorus::models::families {

Result<Blueprint> read_glm4_moe(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_ASSIGN(AttentionSpec attention, read_attention(config, {10000, 0.5}));
  CHORUS_ASSIGN(const bool norm, config.flag_or("use_qk_norm", false));
  if (norm) attention.norm = AttentionSpec::QueryKeyNorm::per_head;
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", false));
  for (size_t i = 0; i < blueprint.layers.size(); ++i)
    blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", bias, false);
  CHORUS_ASSIGN(const SigmoidMoe moe, read_sigmoid_moe(config, blueprint.layers.size()));
  place_sigmoid_moe(moe, names, blueprint);
  CHORUS_TRY(ignore_prediction_layers(config, names, blueprint));
  return blueprint;
}

}  // namespace chorus::models::families
