// Qwen3.5 (Qwen Team 2026): three GatedDeltaNet layers (Yang et al. 2024) to one of gated attention, norms that multiply by 1 + w, rotary
// embeddings on a quarter of a head. The layers with experts have a shared expert behind a sigmoid gate.
#include "base/bytes.h"
#include "models/families/family.h"

namespace chorus::models::families {

namespace {

constexpr RopeDefaults kRope = {10000, 0.25};

Result<DeltaSpec> read_delta(const ConfigReader& config) {
  DeltaSpec delta;
  compute::GatedDeltaShape& shape = delta.shape;
  CHORUS_ASSIGN(shape.key_heads, config.size("linear_num_key_heads"));
  CHORUS_ASSIGN(shape.value_heads, config.size("linear_num_value_heads"));
  CHORUS_ASSIGN(shape.key_dim, config.size("linear_key_head_dim"));
  CHORUS_ASSIGN(shape.value_dim, config.size("linear_value_head_dim"));
  if (shape.value_heads % shape.key_heads != 0) {
    return config.invalid("linear_num_value_heads",
                          std::to_string(shape.value_heads) + " is no multiple of linear_num_key_heads " + std::to_string(shape.key_heads));
  }
  // The widest projection has q | k | v | z | b | a.
  CHORUS_TRY(config.product("linear_num_key_heads x linear_key_head_dim", 4ull * shape.key_heads, shape.key_dim));
  CHORUS_TRY(config.product("linear_num_value_heads x linear_value_head_dim", 8ull * shape.value_heads, shape.value_dim));
  CHORUS_ASSIGN(const uint32_t kernel, config.size_or("linear_conv_kernel_dim", 4));
  if (kernel != 4) return config.unsupported("linear_conv_kernel_dim", "4", std::to_string(kernel));
  return delta;
}

DeltaSpec name_delta(DeltaSpec delta, const std::string& at) {
  delta.in_qkv = at + "in_proj_qkv.weight";
  delta.in_z = at + "in_proj_z.weight";
  delta.in_b = at + "in_proj_b.weight";
  delta.in_a = at + "in_proj_a.weight";
  delta.conv = at + "conv1d.weight";
  delta.a_log = at + "A_log";
  delta.dt_bias = at + "dt_bias";
  delta.norm = at + "norm.weight";
  delta.out = at + "out_proj.weight";
  return delta;
}

Result<std::vector<bool>> read_attention_layers(const ConfigReader& config, size_t layers) {
  std::vector<bool> attention(layers);
  if (!config.has("layer_types")) {
    CHORUS_ASSIGN(const uint32_t interval, config.size_or("full_attention_interval", 4, 1, limits::kLayersMax));
    for (size_t i = 0; i < layers; ++i) attention[i] = (i + 1) % interval == 0;
    return attention;
  }
  CHORUS_ASSIGN(const auto types, config.texts("layer_types"));
  if (types.size() != layers) {
    return config.invalid("layer_types",
                          "expected one of each of the " + std::to_string(layers) + " layers, found " + std::to_string(types.size()));
  }
  for (size_t i = 0; i < layers; ++i) {
    attention[i] = types[i] == "full_attention";
    if (!attention[i] && types[i] != "linear_attention")
      return config.unsupported("layer_types", "\"linear_attention\" and \"full_attention\"", quote_text(types[i]));
  }
  return attention;
}

// Everything but the feed-forward.
Result<Blueprint> read_hybrid(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  blueprint.norm_form = compute::NormWeight::one_plus;
  CHORUS_ASSIGN(AttentionSpec attention, read_attention(config, kRope));
  CHORUS_TRY(config.require_flag("attention_bias", false));
  CHORUS_TRY(config.require_flag("attn_output_gate", true));
  attention.output_gate = true;
  attention.norm = AttentionSpec::QueryKeyNorm::per_head;
  CHORUS_ASSIGN(const DeltaSpec delta, read_delta(config));
  CHORUS_ASSIGN(const auto is_attention, read_attention_layers(config, blueprint.layers.size()));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    if (is_attention[i]) {
      blueprint.layers[i].mixer = name_attention(attention, names.layer(i) + "self_attn.", false, false);
    } else {
      blueprint.layers[i].mixer = name_delta(delta, names.layer(i) + "linear_attn.");
    }
  }
  return blueprint;
}

}  // namespace

Result<Blueprint> read_qwen3_5(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_hybrid(config, names));
  CHORUS_ASSIGN(const uint32_t inner, config.size("intermediate_size", 1, limits::kModelDimensionMax / 2));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) blueprint.layers[i].feed_forward = name_dense(names.layer(i) + "mlp.", inner);
  return blueprint;
}

Result<Blueprint> read_qwen3_5_moe(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_hybrid(config, names));
  CHORUS_ASSIGN(MoeSpec moe, read_moe(config, {"num_experts"}, "moe_intermediate_size"));
  moe.renormalise = true;
  CHORUS_ASSIGN(const uint32_t shared, config.size("shared_expert_intermediate_size", 1, limits::kModelDimensionMax / 2));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string at = names.layer(i) + "mlp.";
    moe.router.weight = at + "gate.weight";
    moe.tensors = name_experts(names, at + "experts.");
    moe.shared = name_dense(at + "shared_expert.", shared);
    moe.shared_gate = at + "shared_expert_gate.weight";
    blueprint.layers[i].feed_forward = moe;
  }
  return blueprint;
}

}  // namespace chorus::models::families
