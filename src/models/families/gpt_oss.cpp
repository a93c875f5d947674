// gpt-oss (OpenAI 2025): every other layer sees a window of keys, attention has a learned sink per head and biases, experts a clamped
// SwiGLU and biases, stored plain or as MXFP4.
#include <cmath>

#include "base/bytes.h"
#include "models/families/family.h"

namespace chorus::models::families {

namespace {

// What the clamped activation has in the reference, where no key sets it; a file may say the limit.
constexpr double kActivationLimit = 7.0;

ExpertTensors name_interleaved(const Names& names, const std::string& at, bool mxfp4) {
  ExpertTensors tensors;
  const bool blocks = names.is_there ? names.has(at + "gate_up_proj_blocks") : mxfp4;
  tensors.form = blocks ? ExpertTensors::Form::mxfp4 : ExpertTensors::Form::interleaved;
  tensors.gate_up = at + "gate_up_proj";
  tensors.down = at + "down_proj";
  tensors.gate_up_bias = at + "gate_up_proj_bias";
  tensors.down_bias = at + "down_proj_bias";
  return tensors;
}

Result<bool> read_mxfp4(const ConfigReader& config) {
  if (!config.has("quantization_config")) return false;
  CHORUS_ASSIGN(const ConfigReader quantization, config.inner("quantization_config"));
  CHORUS_TRY(quantization.require_text("quant_method", "mxfp4"));
  return true;
}

Result<std::vector<uint32_t>> read_layer_windows(const ConfigReader& config, size_t layers) {
  CHORUS_ASSIGN(std::vector<uint32_t> windows, read_windows(config, layers));
  if (!windows.empty()) return windows;
  CHORUS_ASSIGN(const uint32_t window, config.size_or("sliding_window", 128, 1, INT32_MAX));
  for (size_t i = 0; i < layers; ++i) windows.push_back(i % 2 == 0 ? window : 0);
  return windows;
}

}  // namespace

Result<Blueprint> read_gpt_oss(const ConfigReader& config, const Names& names) {
  CHORUS_ASSIGN(Blueprint blueprint, read_trunk(config, names));
  CHORUS_ASSIGN(AttentionSpec attention, read_attention(config, {150000, 1}));
  CHORUS_ASSIGN(const bool bias, config.flag_or("attention_bias", true));
  CHORUS_ASSIGN(const auto windows, read_layer_windows(config, blueprint.layers.size()));
  CHORUS_ASSIGN(MoeSpec moe, read_moe(config, {"num_local_experts", "num_experts"}, "intermediate_size"));
  moe.renormalise = true;  // softmax over the chosen
  moe.activation = compute::ExpertActivation::clamped_swiglu;
  CHORUS_ASSIGN(const double limit, config.number_or("swiglu_limit", kActivationLimit, 0, 1e6));
  if (limit != kActivationLimit) return config.unsupported("swiglu_limit", "7.0", formats::python_float_text(limit));
  CHORUS_ASSIGN(const bool mxfp4, read_mxfp4(config));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string at = names.layer(i);
    attention.window = windows[i];
    attention.sinks = at + "self_attn.sinks";
    blueprint.layers[i].mixer = name_attention(attention, at + "self_attn.", bias, bias);
    moe.router = {at + "mlp.router.weight", at + "mlp.router.bias"};
    moe.tensors = name_interleaved(names, at + "mlp.experts.", mxfp4);
    blueprint.layers[i].feed_forward = moe;
  }
  return blueprint;
}

}  // namespace chorus::models::families
