#include "models/families/read_blueprint.h"

#include "base/bytes.h"
#include "models/families/family.h"

namespace chorus::models {

namespace {

using families::ConfigReader;
using families::Names;

struct Family {
  std::string_view model_type;
  families::FamilyReader read;
  bool wrapped = false;  // a multimodal model; the text model is in text_config
};

constexpr Family kFamilies[] = {
    {"deepseek_v3", families::read_deepseek_v3},
    {"deepseek_v32", families::read_deepseek_v32},
    {"glm4_moe", families::read_glm4_moe},
    {"glm_moe_dsa", families::read_glm_moe_dsa},
    {"gpt_oss", families::read_gpt_oss},
    {"kimi_k2", families::read_deepseek_v3},
    {"llama", families::read_llama},
    {"mixtral", families::read_mixtral},
    {"olmoe", families::read_olmoe},
    {"qwen3", families::read_qwen3},
    {"qwen3_5", families::read_qwen3_5, true},
    {"qwen3_5_moe", families::read_qwen3_5_moe, true},
    {"qwen3_5_moe_text", families::read_qwen3_5_moe},
    {"qwen3_5_text", families::read_qwen3_5},
    {"qwen3_moe", families::read_qwen3_moe},
};

// Vision and multi-token prediction of multimodal checkpoints, whatever the backbone's prefix.
constexpr std::string_view kIgnoredPrefixes[] = {"model.visual.", "visual.", "vision_tower.", "model.mtp.", "mtp.", "language_model.mtp."};
constexpr std::string_view kBackbones[] = {"model.language_model.", "language_model.model.", "model.", ""};
constexpr std::string_view kHeads[] = {"lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight"};

std::string supported_names() {
  std::string names;
  for (const Family& family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  return names;
}

Result<const Family*> find_family(const ConfigReader& config) {
  CHORUS_ASSIGN(const std::string type, config.text_or("model_type", ""));
  for (const Family& family : kFamilies) {
    if (family.model_type == type) return &family;
  }
  if (type.empty()) return make_error(ErrorCode::invalid_input, config.what("model_type") + ": missing");
  return config.unsupported("model_type", supported_names(), quote_text(type));
}

Result<Names> find_names(const TensorIsThere& is_there, bool wrapped) {
  Names names;
  names.is_there = is_there;
  if (wrapped) names.backbone = "model.language_model.";
  if (!is_there) return names;
  bool found = false;
  for (const std::string_view backbone : kBackbones) {
    if (found || !is_there(std::string(backbone) + "embed_tokens.weight")) continue;
    names.backbone = backbone;
    found = true;
  }
  if (!found) {
    return make_error(ErrorCode::not_found,
                      "no tensor \"embed_tokens.weight\", with no prefix or with \"model.\", \"model.language_model.\" or "
                      "\"language_model.model.\"");
  }
  for (const std::string_view head : kHeads) {
    if (is_there(std::string(head))) names.head = head;
  }
  return names;
}

}  // namespace

Result<Blueprint> read_blueprint(std::string_view config_json, const TensorIsThere& is_there) {
  auto parsed = formats::parse_json(config_json);
  if (!parsed) return std::move(parsed).error().with_context("reading config.json");
  const ConfigReader outer(*parsed, "config.json");
  CHORUS_TRY(parsed->as_object("config.json"));
  CHORUS_ASSIGN(const Family* family, find_family(outer));
  if (outer.has("quantization_config") && family->read != families::read_gpt_oss)
    return outer.unsupported("quantization_config", "f32, f16 and bf16 weights of this architecture", "a quantised checkpoint");
  CHORUS_ASSIGN(const ConfigReader config, family->wrapped ? outer.inner("text_config") : Result<ConfigReader>(outer));
  if (family->wrapped) CHORUS_TRY(config.require_text("model_type", std::string(family->model_type) + "_text"));
  CHORUS_ASSIGN(const Names names, find_names(is_there, family->wrapped));
  CHORUS_ASSIGN(Blueprint blueprint, family->read(config, names));
  blueprint.model_type = family->model_type;
  if (family->wrapped && !config.has("tie_word_embeddings")) {
    CHORUS_ASSIGN(const bool tied, outer.flag_or("tie_word_embeddings", false));
    if (tied) {
      blueprint.language_head = blueprint.embedding;
      blueprint.ignored_prefixes.push_back(names.head);
    }
  }
  for (const std::string_view prefix : kIgnoredPrefixes) blueprint.ignored_prefixes.emplace_back(prefix);
  return blueprint;
}

}  // namespace chorus::models
