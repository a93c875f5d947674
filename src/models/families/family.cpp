#include "models/families/family.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace chorus::models::families {

namespace {

constexpr uint32_t kExpertsMax = 1u << 16;

}  // namespace

Result<Blueprint> read_trunk(const ConfigReader& config, const Names& names) {
  Blueprint blueprint;
  CHORUS_ASSIGN(blueprint.hidden, config.size("hidden_size"));
  CHORUS_ASSIGN(blueprint.vocabulary, config.size("vocab_size", 1, limits::kVocabularyMax));
  CHORUS_ASSIGN(blueprint.context, config.size("max_position_embeddings", 1, INT32_MAX));
  CHORUS_ASSIGN(const double epsilon, config.number_or("rms_norm_eps", 1e-6, 1e-30, 1));
  blueprint.epsilon = static_cast<float>(epsilon);
  CHORUS_TRY(config.require_text("hidden_act", "silu"));
  CHORUS_ASSIGN(const bool tied, config.flag_or("tie_word_embeddings", false));
  blueprint.embedding = names.backbone + "embed_tokens.weight";
  blueprint.final_norm = names.backbone + "norm.weight";
  blueprint.language_head = tied ? blueprint.embedding : names.head;
  if (tied) blueprint.ignored_prefixes.push_back(names.head);  // some files hold a copy
  CHORUS_ASSIGN(blueprint.end_tokens, config.sizes("eos_token_id", blueprint.vocabulary - 1));
  CHORUS_ASSIGN(const uint32_t layers, config.size("num_hidden_layers", 1, limits::kLayersMax));
  blueprint.layers.resize(layers);
  for (size_t i = 0; i < layers; ++i) {
    blueprint.layers[i].input_norm = names.layer(i) + "input_layernorm.weight";
    blueprint.layers[i].post_norm = names.layer(i) + "post_attention_layernorm.weight";
  }
  return blueprint;
}

Result<AttentionSpec> read_attention(const ConfigReader& config, const RopeDefaults& rope) {
  AttentionSpec spec;
  CHORUS_ASSIGN(spec.query_heads, config.size("num_attention_heads"));
  CHORUS_ASSIGN(spec.kv_heads, config.size_or("num_key_value_heads", spec.query_heads));
  if (spec.query_heads % spec.kv_heads != 0) {
    return config.invalid("num_attention_heads",
                          std::to_string(spec.query_heads) + " is no multiple of num_key_value_heads " + std::to_string(spec.kv_heads));
  }
  CHORUS_ASSIGN(const uint32_t hidden, config.size("hidden_size"));
  CHORUS_ASSIGN(spec.head_dim, config.size_or("head_dim", hidden / spec.query_heads));
  if (!config.has("head_dim") && hidden % spec.query_heads != 0) {
    return config.invalid("hidden_size",
                          std::to_string(hidden) + " is no multiple of num_attention_heads " + std::to_string(spec.query_heads));
  }
  CHORUS_TRY(config.product("num_attention_heads x head_dim", 2ull * spec.query_heads, spec.head_dim));
  spec.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.head_dim)));
  CHORUS_ASSIGN(spec.rope, read_rope(config, spec.head_dim, compute::RopeForm::halves, rope));
  return spec;
}

AttentionSpec name_attention(AttentionSpec spec, const std::string& at, bool input_bias, bool output_bias) {
  const auto linear = [&](const char* name, bool bias) {
    return LinearSpec{at + name + ".weight", bias ? at + name + ".bias" : std::string()};
  };
  spec.q = linear("q_proj", input_bias);
  spec.k = linear("k_proj", input_bias);
  spec.v = linear("v_proj", input_bias);
  spec.o = linear("o_proj", output_bias);
  if (spec.norm != AttentionSpec::QueryKeyNorm::none) {
    spec.q_norm = at + "q_norm.weight";
    spec.k_norm = at + "k_norm.weight";
  }
  return spec;
}

Result<std::vector<uint32_t>> read_windows(const ConfigReader& config, size_t layers) {
  std::vector<uint32_t> windows;
  if (!config.has("layer_types")) return windows;
  CHORUS_ASSIGN(const auto types, config.texts("layer_types"));
  if (types.size() != layers) {
    return config.invalid("layer_types",
                          "expected one of each of the " + std::to_string(layers) + " layers, found " + std::to_string(types.size()));
  }
  for (const std::string& type : types) {
    if (type == "sliding_attention") {
      CHORUS_ASSIGN(const uint32_t window, config.size("sliding_window", 1, INT32_MAX));
      windows.push_back(window);
    } else if (type == "full_attention") {
      windows.push_back(0);
    } else {
      return config.unsupported("layer_types", "\"full_attention\" and \"sliding_attention\"", quote_text(type));
    }
  }
  return windows;
}

DenseSpec name_dense(const std::string& at, uint32_t inner) {
  return {inner, at + "gate_proj.weight", at + "up_proj.weight", at + "down_proj.weight"};
}

Result<MoeSpec> read_moe(const ConfigReader& config, std::initializer_list<std::string_view> experts_keys, std::string_view inner_key) {
  MoeSpec moe;
  CHORUS_ASSIGN(moe.experts, config.size(config.present(experts_keys), 1, kExpertsMax));
  const std::string_view top_k_key = "num_experts_per_tok";
  CHORUS_ASSIGN(moe.top_k, config.size(top_k_key, 1, moe.experts));
  if (moe.top_k > compute::kExpertsPerTokenMax) {
    return config.unsupported(top_k_key, "at most " + std::to_string(compute::kExpertsPerTokenMax), std::to_string(moe.top_k));
  }
  CHORUS_ASSIGN(moe.inner, config.size(inner_key, 1, limits::kModelDimensionMax / 2));
  return moe;
}

ExpertTensors name_experts(const Names& names, const std::string& at, std::string_view gate, std::string_view up, std::string_view down) {
  ExpertTensors tensors;
  if (names.has(at + "gate_up_proj")) {
    tensors.form = ExpertTensors::Form::fused;
    tensors.gate_up = at + "gate_up_proj";
    tensors.down = at + "down_proj";
    return tensors;
  }
  const auto name = [&](std::string_view part) { return at + "{E}." + std::string(part) + ".weight"; };
  tensors.gate = name(gate);
  tensors.up = name(up);
  tensors.down = name(down);
  return tensors;
}

namespace {

// mlp_layer_types names each layer; else the first ones are dense.
Result<std::vector<bool>> read_sparse_layers(const ConfigReader& config, size_t layers) {
  std::vector<bool> sparse(layers, true);
  if (config.has("mlp_layer_types")) {
    CHORUS_ASSIGN(const auto types, config.texts("mlp_layer_types"));
    if (types.size() != layers) {
      return config.invalid("mlp_layer_types",
                            "expected one of each of the " + std::to_string(layers) + " layers, found " + std::to_string(types.size()));
    }
    for (size_t i = 0; i < layers; ++i) {
      if (types[i] != "dense" && types[i] != "sparse")
        return config.unsupported("mlp_layer_types", "\"dense\" and \"sparse\"", quote_text(types[i]));
      sparse[i] = types[i] == "sparse";
    }
    return sparse;
  }
  CHORUS_ASSIGN(const uint32_t dense, config.size("first_k_dense_replace", 0, INT32_MAX));
  std::fill_n(sparse.begin(), std::min<size_t>(dense, layers), false);
  CHORUS_ASSIGN(const uint32_t step, config.size_or("moe_layer_freq", 1, 1, INT32_MAX));
  if (step != 1) return config.unsupported("moe_layer_freq", "1", std::to_string(step));
  return sparse;
}

}  // namespace

Result<SigmoidMoe> read_sigmoid_moe(const ConfigReader& config, size_t layers) {
  SigmoidMoe spec;
  CHORUS_ASSIGN(spec.moe, read_moe(config, {"n_routed_experts", "num_experts"}, "moe_intermediate_size"));
  CHORUS_TRY(config.require_text("scoring_func", "sigmoid"));
  CHORUS_TRY(config.require_text("topk_method", "noaux_tc"));
  MoeSpec& moe = spec.moe;
  moe.score = compute::RouterScore::sigmoid;
  CHORUS_ASSIGN(moe.groups, config.size_or("n_group", 1, 1, moe.experts));
  CHORUS_ASSIGN(moe.groups_kept, config.size_or("topk_group", 1, 1, moe.groups));
  const uint32_t group = moe.experts / moe.groups;
  if (moe.experts % moe.groups != 0 || (moe.groups > 1 && group < 2) || moe.top_k > group * moe.groups_kept) {
    return config.invalid("n_group", std::to_string(moe.groups) + " groups of " + std::to_string(moe.experts) + " experts, " +
                                         std::to_string(moe.groups_kept) + " kept: expected equal groups of at least 2 that hold the " +
                                         std::to_string(moe.top_k) + " experts of a token");
  }
  CHORUS_ASSIGN(moe.renormalise, config.flag_or("norm_topk_prob", true));
  CHORUS_ASSIGN(const double scale, config.number_or("routed_scaling_factor", 1, 1e-6, 1e6));
  moe.scale = static_cast<float>(scale);
  CHORUS_ASSIGN(const uint32_t shared, config.size_or("n_shared_experts", 0, 0, limits::kModelDimensionMax));
  CHORUS_ASSIGN(spec.shared_inner, config.product("n_shared_experts x moe_intermediate_size", 2ull * shared, moe.inner));
  spec.shared_inner /= 2;
  CHORUS_ASSIGN(spec.is_sparse, read_sparse_layers(config, layers));
  CHORUS_ASSIGN(spec.dense_inner, config.size("intermediate_size", 1, limits::kModelDimensionMax / 2));
  return spec;
}

void place_sigmoid_moe(const SigmoidMoe& spec, const Names& names, Blueprint& blueprint) {
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string at = names.layer(i) + "mlp.";
    if (!spec.is_sparse[i]) {
      blueprint.layers[i].feed_forward = name_dense(at, spec.dense_inner);
      continue;
    }
    MoeSpec moe = spec.moe;
    moe.router.weight = at + "gate.weight";
    moe.correction_bias = at + "gate.e_score_correction_bias";
    moe.tensors = name_experts(names, at + "experts.");
    if (spec.shared_inner > 0) moe.shared = name_dense(at + "shared_experts.", spec.shared_inner);
    blueprint.layers[i].feed_forward = std::move(moe);
  }
}

Status ignore_prediction_layers(const ConfigReader& config, const Names& names, Blueprint& blueprint) {
  const auto key = config.present({"num_nextn_predict_layers", "num_mtp_layers"});
  CHORUS_ASSIGN(const uint32_t extra, config.size_or(key, 1, 0, limits::kLayersMax));
  for (uint32_t i = 0; i < extra; ++i) blueprint.ignored_prefixes.push_back(names.layer(blueprint.layers.size() + i));
  return {};
}

}  // namespace chorus::models::families
