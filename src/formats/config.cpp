#include "formats/config.h"

#include <cmath>

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/json.h"

namespace chorus::formats {
namespace {

constexpr std::string_view kTextModelType = "qwen3_5_text";
constexpr std::string_view kMultimodalModelType = "qwen3_5";
// Defaults of the architecture where a file leaves the value out (transformers 5, Qwen3_5TextConfig).
constexpr double kRmsEpsilonDefault = 1e-6;
constexpr double kPartialRotaryFactorDefault = 0.25;
constexpr uint32_t kFullAttentionIntervalDefault = 4;
constexpr uint32_t kConvKernel = 4;

// The object that holds the sizes, with the name errors give it.
struct Section {
  const JsonValue& object;
  std::string where;

  std::string what(std::string_view key) const { return where + ": " + std::string(key); }
  // The value, or null when it is absent or JSON null.
  const JsonValue* find(std::string_view key) const {
    const JsonValue* value = object.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
};

Error unsupported(const Section& section, std::string_view key, const std::string& expected, const std::string& found) {
  return make_error(ErrorCode::unsupported, section.what(key) + ": this program runs " + expected + ", found " + found);
}

Result<uint32_t> read_size(const Section& section, std::string_view key, uint32_t low, uint32_t high) {
  const JsonValue* value = section.find(key);
  if (value == nullptr) return make_error(ErrorCode::invalid_input, section.what(key) + ": missing");
  CHORUS_ASSIGN(const uint64_t size, value->as_uint64(section.what(key)));
  if (size < low || size > high) {
    return make_error(ErrorCode::invalid_input, section.what(key) + ": expected " + std::to_string(low) + " to " + std::to_string(high) +
                                                    ", found " + std::to_string(size));
  }
  return static_cast<uint32_t>(size);
}

Result<double> read_number(const Section& section, std::string_view key, double fallback) {
  const JsonValue* value = section.find(key);
  return value == nullptr ? Result<double>(fallback) : value->as_double(section.what(key));
}

Status refuse_unless_bool(const Section& section, std::string_view key, bool required) {
  const JsonValue* value = section.find(key);
  if (value == nullptr) return {};
  CHORUS_ASSIGN(const bool found, value->as_bool(section.what(key)));
  if (found == required) return {};
  return unsupported(section, key, required ? "true" : "false", found ? "true" : "false");
}

Status refuse_unless_text(const Section& section, std::string_view key, std::string_view required) {
  const JsonValue* value = section.find(key);
  if (value == nullptr) return {};
  CHORUS_ASSIGN(const std::string_view found, value->as_string(section.what(key)));
  if (found == required) return {};
  return unsupported(section, key, quote_text(required), quote_text(found));
}

Status check_product(const Section& section, std::string_view what, uint64_t a, uint64_t b) {
  const uint64_t product = a * b;  // both below 2^32
  if (product <= limits::kModelDimensionMax) return {};
  return make_error(ErrorCode::limit_exceeded, section.what(what) + " = " + std::to_string(a) + " x " + std::to_string(b) +
                                                   " is over the limit of " + std::to_string(limits::kModelDimensionMax));
}

Result<std::vector<LayerType>> read_layer_types(const Section& section, uint32_t layers) {
  std::vector<LayerType> types;
  const JsonValue* list = section.find("layer_types");
  if (list == nullptr) {
    uint32_t interval = kFullAttentionIntervalDefault;
    if (section.find("full_attention_interval") != nullptr) {
      CHORUS_ASSIGN(interval, read_size(section, "full_attention_interval", 1, limits::kLayersMax));
    }
    for (uint32_t i = 0; i < layers; ++i) {
      types.push_back((i + 1) % interval == 0 ? LayerType::full_attention : LayerType::linear_attention);
    }
    return types;
  }
  CHORUS_ASSIGN(const auto items, list->as_array(section.what("layer_types")));
  if (items.size() != layers) {
    return make_error(ErrorCode::invalid_input, section.what("layer_types") + ": expected num_hidden_layers = " + std::to_string(layers) +
                                                    " entries, found " + std::to_string(items.size()));
  }
  for (const auto& item : items) {
    CHORUS_ASSIGN(const std::string_view name, item.as_string(section.what("layer_types")));
    if (name == "linear_attention") {
      types.push_back(LayerType::linear_attention);
    } else if (name == "full_attention") {
      types.push_back(LayerType::full_attention);
    } else {
      return unsupported(section, "layer_types", "\"linear_attention\" and \"full_attention\"", quote_text(name));
    }
  }
  return types;
}

// rope_parameters (transformers 5), or rope_theta with rope_scaling beside it (before).
Status read_rope(const Section& section, TextConfig& config) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const JsonValue* object = section.find(key);
    if (object == nullptr) continue;
    CHORUS_TRY(object->as_object(section.what(key)));
    const Section rope{*object, section.what(key)};
    CHORUS_TRY(refuse_unless_text(rope, "rope_type", "default"));
    CHORUS_TRY(refuse_unless_text(rope, "type", "default"));
  }
  const JsonValue* parameters = section.find("rope_parameters");
  const Section inner{parameters != nullptr ? *parameters : section.object,
                      parameters != nullptr ? section.what("rope_parameters") : section.where};
  const Section& theta_section = inner.find("rope_theta") != nullptr ? inner : section;
  if (theta_section.find("rope_theta") == nullptr) return make_error(ErrorCode::invalid_input, section.what("rope_theta") + ": missing");
  CHORUS_ASSIGN(config.rope_theta, read_number(theta_section, "rope_theta", 0));
  if (!(config.rope_theta >= 1 && config.rope_theta <= 1e15)) {
    return make_error(ErrorCode::invalid_input,
                      theta_section.what("rope_theta") + ": expected 1 to 1e15, found " + python_float_text(config.rope_theta));
  }
  const Section& factor_section = inner.find("partial_rotary_factor") != nullptr ? inner : section;
  CHORUS_ASSIGN(const double factor, read_number(factor_section, "partial_rotary_factor", kPartialRotaryFactorDefault));
  if (!(factor > 0 && factor <= 1)) {
    return make_error(ErrorCode::invalid_input, factor_section.what("partial_rotary_factor") +
                                                    ": expected a number above 0 up to 1, found " + python_float_text(factor));
  }
  config.rotary_dim = static_cast<uint32_t>(static_cast<double>(config.head_dim) * factor);
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0) {
    return make_error(ErrorCode::invalid_input, factor_section.what("partial_rotary_factor") + ": " + python_float_text(factor) +
                                                    " of head_dim " + std::to_string(config.head_dim) + " gives " +
                                                    std::to_string(config.rotary_dim) +
                                                    " rotary dimensions, expected an even number of at least 2");
  }
  return {};
}

Result<uint32_t> read_token_id(const JsonValue& value, const std::string& what, uint32_t vocab_size) {
  CHORUS_ASSIGN(const uint64_t id, value.as_uint64(what));
  if (id >= vocab_size) {
    return make_error(ErrorCode::invalid_input,
                      what + ": expected a token id below vocab_size " + std::to_string(vocab_size) + ", found " + std::to_string(id));
  }
  return static_cast<uint32_t>(id);
}

Status read_token_ids(const Section& section, TextConfig& config) {
  if (const JsonValue* eos = section.find("eos_token_id")) {
    const std::string what = section.what("eos_token_id");
    if (!eos->is_array()) {
      CHORUS_ASSIGN(const uint32_t id, read_token_id(*eos, what, config.vocab_size));
      config.eos_token_ids.push_back(id);
    }
    for (const auto& item : eos->items()) {
      CHORUS_ASSIGN(const uint32_t id, read_token_id(item, what, config.vocab_size));
      config.eos_token_ids.push_back(id);
    }
  }
  if (const JsonValue* pad = section.find("pad_token_id")) {
    CHORUS_ASSIGN(config.pad_token_id, read_token_id(*pad, section.what("pad_token_id"), config.vocab_size));
  }
  return {};
}

Status read_attention(const Section& section, TextConfig& config) {
  constexpr uint32_t kMax = limits::kModelDimensionMax;
  CHORUS_ASSIGN(config.query_heads, read_size(section, "num_attention_heads", 1, kMax));
  CHORUS_ASSIGN(config.kv_heads, read_size(section, "num_key_value_heads", 1, kMax));
  CHORUS_ASSIGN(config.head_dim, read_size(section, "head_dim", 2, kMax));
  if (config.query_heads % config.kv_heads != 0) {
    return make_error(ErrorCode::invalid_input, section.what("num_attention_heads") + ": " + std::to_string(config.query_heads) +
                                                    " is no multiple of num_key_value_heads " + std::to_string(config.kv_heads));
  }
  CHORUS_TRY(check_product(section, "num_attention_heads x head_dim", config.query_heads, config.head_dim));
  CHORUS_TRY(refuse_unless_bool(section, "attention_bias", false));
  CHORUS_TRY(refuse_unless_bool(section, "attn_output_gate", true));
  return read_rope(section, config);
}

Status read_delta_net(const Section& section, TextConfig& config) {
  constexpr uint32_t kMax = limits::kModelDimensionMax;
  CHORUS_ASSIGN(config.linear_key_heads, read_size(section, "linear_num_key_heads", 1, kMax));
  CHORUS_ASSIGN(config.linear_value_heads, read_size(section, "linear_num_value_heads", 1, kMax));
  CHORUS_ASSIGN(config.linear_key_dim, read_size(section, "linear_key_head_dim", 1, kMax));
  CHORUS_ASSIGN(config.linear_value_dim, read_size(section, "linear_value_head_dim", 1, kMax));
  if (config.linear_value_heads % config.linear_key_heads != 0) {
    return make_error(ErrorCode::invalid_input, section.what("linear_num_value_heads") + ": " + std::to_string(config.linear_value_heads) +
                                                    " is no multiple of linear_num_key_heads " + std::to_string(config.linear_key_heads));
  }
  CHORUS_TRY(check_product(section, "linear_num_key_heads x linear_key_head_dim", config.linear_key_heads, config.linear_key_dim));
  CHORUS_TRY(check_product(section, "linear_num_value_heads x linear_value_head_dim", config.linear_value_heads, config.linear_value_dim));
  CHORUS_ASSIGN(config.conv_kernel, read_size(section, "linear_conv_kernel_dim", 1, kMax));
  if (config.conv_kernel != kConvKernel) return unsupported(section, "linear_conv_kernel_dim", "4", std::to_string(config.conv_kernel));
  return {};
}

Status read_text_config(const Section& section, TextConfig& config) {
  constexpr uint32_t kMax = limits::kModelDimensionMax;
  CHORUS_ASSIGN(config.hidden_size, read_size(section, "hidden_size", 1, kMax));
  CHORUS_ASSIGN(config.layers, read_size(section, "num_hidden_layers", 1, limits::kLayersMax));
  CHORUS_ASSIGN(config.intermediate_size, read_size(section, "intermediate_size", 1, kMax));
  CHORUS_ASSIGN(config.vocab_size, read_size(section, "vocab_size", 1, limits::kVocabularyMax));
  CHORUS_ASSIGN(config.layer_types, read_layer_types(section, config.layers));
  CHORUS_TRY(read_attention(section, config));
  CHORUS_TRY(read_delta_net(section, config));
  CHORUS_ASSIGN(config.max_positions, read_size(section, "max_position_embeddings", 1, INT32_MAX));
  CHORUS_ASSIGN(config.rms_epsilon, read_number(section, "rms_norm_eps", kRmsEpsilonDefault));
  if (!(static_cast<float>(config.rms_epsilon) > 0 && config.rms_epsilon < 1)) {  // kernels take it as f32
    return make_error(ErrorCode::invalid_input, section.what("rms_norm_eps") +
                                                    ": expected a number between 0 and 1 that f32 holds, found " +
                                                    python_float_text(config.rms_epsilon));
  }
  CHORUS_TRY(refuse_unless_text(section, "hidden_act", "silu"));
  return read_token_ids(section, config);
}

}  // namespace

Result<TextConfig> parse_config(std::string_view json) {
  auto parsed = parse_json(json);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading config.json");
  const Section outer{*parsed, "config.json"};
  CHORUS_TRY(parsed->as_object(outer.where));
  CHORUS_ASSIGN(const JsonValue* type_value, parsed->member("model_type", outer.where));
  CHORUS_ASSIGN(const std::string_view model_type, type_value->as_string(outer.what("model_type")));
  if (model_type != kTextModelType && model_type != kMultimodalModelType) {
    return unsupported(outer, "model_type", "\"qwen3_5_text\" and the text part of \"qwen3_5\"", quote_text(model_type));
  }
  if (outer.find("quantization_config") != nullptr)
    return unsupported(outer, "quantization_config", "plain f32, f16 and bf16 weights", "a quantised checkpoint");

  TextConfig config;
  config.model_type = model_type;
  const JsonValue* nested = nullptr;
  if (model_type == kMultimodalModelType) {
    CHORUS_ASSIGN(nested, parsed->member("text_config", outer.where));
    CHORUS_TRY(nested->as_object(outer.what("text_config")));
  }
  const Section section{nested != nullptr ? *nested : *parsed, nested != nullptr ? "config.json: text_config" : outer.where};
  CHORUS_TRY(refuse_unless_text(section, "model_type", kTextModelType));
  CHORUS_TRY(read_text_config(section, config));
  const Section& tie_section = section.find("tie_word_embeddings") != nullptr ? section : outer;
  if (const JsonValue* tie = tie_section.find("tie_word_embeddings")) {
    CHORUS_ASSIGN(config.tie_word_embeddings, tie->as_bool(tie_section.what("tie_word_embeddings")));
  }
  return config;
}

}  // namespace chorus::formats
