// What the family files share: the names of tensors, and the parts that most families have.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/blueprint.h"
#include "models/families/config_reader.h"
#include "models/families/rope.h"

namespace chorus::models::families {

// Names as the checkpoint at hand has them.
struct Names {
  std::string backbone = "model.";                   // what stands before "layers.0."
  std::string head = "lm_head.weight";               // of the language head, when it is not tied
  std::function<bool(const std::string&)> is_there;  // whether a tensor of that name exists; null: unknown, so what the hub has

  std::string layer(size_t index) const { return backbone + "layers." + std::to_string(index) + "."; }
  bool has(const std::string& name) const { return is_there && is_there(name); }
};

using FamilyReader = Result<Blueprint> (*)(const ConfigReader& config, const Names& names);

Result<Blueprint> read_llama(const ConfigReader& config, const Names& names);
Result<Blueprint> read_qwen3(const ConfigReader& config, const Names& names);
Result<Blueprint> read_qwen3_moe(const ConfigReader& config, const Names& names);
Result<Blueprint> read_qwen3_5(const ConfigReader& config, const Names& names);
Result<Blueprint> read_qwen3_5_moe(const ConfigReader& config, const Names& names);
Result<Blueprint> read_olmoe(const ConfigReader& config, const Names& names);
Result<Blueprint> read_mixtral(const ConfigReader& config, const Names& names);
Result<Blueprint> read_glm4_moe(const ConfigReader& config, const Names& names);
Result<Blueprint> read_deepseek_v3(const ConfigReader& config, const Names& names);
Result<Blueprint> read_deepseek_v32(const ConfigReader& config, const Names& names);
Result<Blueprint> read_glm_moe_dsa(const ConfigReader& config, const Names& names);
Result<Blueprint> read_gpt_oss(const ConfigReader& config, const Names& names);

// Sizes, embedding, head, norms of every layer, end tokens. Layers have no mixer and feed-forward yet.
Result<Blueprint> read_trunk(const ConfigReader& config, const Names& names);

// Grouped-query attention without names: heads, scale, rope.
Result<AttentionSpec> read_attention(const ConfigReader& config, const RopeDefaults& rope = {});
// `spec` with the usual names under "layers.N.self_attn.", biases where asked for, and the norms' names if spec.norm calls for them.
AttentionSpec name_attention(AttentionSpec spec, const std::string& at, bool input_bias, bool output_bias);
// "sliding_attention" or "full_attention" per layer: sliding layers see `window` keys. Empty windows without layer_types.
Result<std::vector<uint32_t>> read_windows(const ConfigReader& config, size_t layers);

// gate_proj, up_proj, down_proj under `at`.
DenseSpec name_dense(const std::string& at, uint32_t inner);

// Experts, top_k and inner size under the keys that families use for them.
Result<MoeSpec> read_moe(const ConfigReader& config, std::initializer_list<std::string_view> experts_keys, std::string_view inner_key);
// The experts under `at` ("layers.N.mlp.experts."): fused tensors when they are there, else one each with the given names.
ExpertTensors name_experts(const Names& names, const std::string& at, std::string_view gate = "gate_proj", std::string_view up = "up_proj",
                           std::string_view down = "down_proj");

// DeepSeek's routing: sigmoid scores, correction bias, groups, renormalisation, scale; shared experts as one wide one.
struct SigmoidMoe {
  MoeSpec moe;
  uint32_t shared_inner = 0;
  uint32_t dense_inner = 0;     // of the layers without experts
  std::vector<bool> is_sparse;  // per layer
};
Result<SigmoidMoe> read_sigmoid_moe(const ConfigReader& config, size_t layers);
void place_sigmoid_moe(const SigmoidMoe& spec, const Names& names, Blueprint& blueprint);

// Layers past the last are for multi-token prediction.
Status ignore_prediction_layers(const ConfigReader& config, const Names& names, Blueprint& blueprint);

}  // namespace chorus::models::families
