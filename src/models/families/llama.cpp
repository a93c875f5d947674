// Llama (Touvron et al. 2023; Dubey et al. 2024): RMSNorm, grouped-query attention with rotary embeddings, SwiGLU.
#include "models/families/family.h"

namespace chorus::models::families {

Result<Blueprint> read_llama(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_TRY(config.require_flag("mlp_bias", false));
  CHORUS_ASSIGN(const AttentionSpec attention, read_attention(config));
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", false));
  CHORUS_ASSIGN(const uint32_t inner, config.size("intermediate_size", 1, limits::kModelDimensionMax / 2));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", bias, bias);
    blueprint.layers[i].feed_forward = name_dense(names.layer(i) + "mlp.", inner);
  }
  return blueprint;
}

}  // namespace chorus::models::families
