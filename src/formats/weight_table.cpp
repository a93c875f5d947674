#include "formats/weight_table.h"

namespace chorus::formats {
namespace {

void add_full_attention(std::vector<WeightShape>& table, const std::string& layer, const TextConfig& config) {
  const uint64_t d = config.hidden_size;
  const uint64_t query_width = static_cast<uint64_t>(config.query_heads) * config.head_dim;
  const uint64_t kv_width = static_cast<uint64_t>(config.kv_heads) * config.head_dim;
  const std::string prefix = layer + "self_attn.";
  table.push_back({prefix + "q_proj.weight", {2 * query_width, d}});  // per head: query, gate
  table.push_back({prefix + "k_proj.weight", {kv_width, d}});
  table.push_back({prefix + "v_proj.weight", {kv_width, d}});
  table.push_back({prefix + "o_proj.weight", {d, query_width}});
  table.push_back({prefix + "q_norm.weight", {config.head_dim}});
  table.push_back({prefix + "k_norm.weight", {config.head_dim}});
}

void add_linear_attention(std::vector<WeightShape>& table, const std::string& layer, const TextConfig& config) {
  const uint64_t d = config.hidden_size;
  const std::string prefix = layer + "linear_attn.";
  table.push_back({prefix + "in_proj_qkv.weight", {config.conv_channels(), d}});
  table.push_back({prefix + "in_proj_z.weight", {config.value_width(), d}});
  table.push_back({prefix + "in_proj_b.weight", {config.linear_value_heads, d}});
  table.push_back({prefix + "in_proj_a.weight", {config.linear_value_heads, d}});
  table.push_back({prefix + "conv1d.weight", {config.conv_channels(), 1, config.conv_kernel}});
  table.push_back({prefix + "A_log", {config.linear_value_heads}});
  table.push_back({prefix + "dt_bias", {config.linear_value_heads}});
  table.push_back({prefix + "norm.weight", {config.linear_value_dim}});
  table.push_back({prefix + "out_proj.weight", {d, config.value_width()}});
}

}  // namespace

std::vector<WeightShape> backbone_weights(const TextConfig& config) {
  const uint64_t d = config.hidden_size;
  const uint64_t ffn = config.intermediate_size;
  std::vector<WeightShape> table;
  table.push_back({"embed_tokens.weight", {config.vocab_size, d}});
  for (uint32_t i = 0; i < config.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    table.push_back({layer + "input_layernorm.weight", {d}});
    if (config.layer_types[i] == LayerType::full_attention) {
      add_full_attention(table, layer, config);
    } else {
      add_linear_attention(table, layer, config);
    }
    table.push_back({layer + "post_attention_layernorm.weight", {d}});
    table.push_back({layer + "mlp.gate_proj.weight", {ffn, d}});
    table.push_back({layer + "mlp.up_proj.weight", {ffn, d}});
    table.push_back({layer + "mlp.down_proj.weight", {d, ffn}});
  }
  table.push_back({"norm.weight", {d}});
  return table;
}

WeightShape lm_head_weight(const TextConfig& config) { return {"lm_head.weight", {config.vocab_size, config.hidden_size}}; }

}  // namespace chorus::formats
