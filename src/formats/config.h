// config.json of a Qwen3.5/3.8 dense text model, checked. After parse_config() every size is in range and consistent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace chorus::formats {

enum class LayerType : uint8_t { linear_attention, full_attention };

struct TextConfig {
  std::string model_type;  // as the file says: "qwen3_5_text", or "qwen3_5" for the multimodal form
  uint32_t hidden_size = 0;
  uint32_t layers = 0;
  uint32_t intermediate_size = 0;
  uint32_t vocab_size = 0;
  std::vector<LayerType> layer_types;  // one per layer
  // Full attention.
  uint32_t query_heads = 0;
  uint32_t kv_heads = 0;  // divides query_heads
  uint32_t head_dim = 0;
  uint32_t rotary_dim = 0;  // even, 2 to head_dim: the first dimensions of a head that RoPE turns
  double rope_theta = 0;
  bool attention_output_gate = true;  // always true in what parse_config accepts
  // GatedDeltaNet.
  uint32_t linear_key_heads = 0;
  uint32_t linear_value_heads = 0;  // a multiple of linear_key_heads
  uint32_t linear_key_dim = 0;      // per head
  uint32_t linear_value_dim = 0;    // per head
  uint32_t conv_kernel = 0;         // always 4
  double rms_epsilon = 0;
  bool tie_word_embeddings = false;
  uint32_t max_positions = 0;
  std::vector<uint32_t> eos_token_ids;  // may be empty
  std::optional<uint32_t> pad_token_id;

  uint32_t key_width() const { return linear_key_heads * linear_key_dim; }
  uint32_t value_width() const { return linear_value_heads * linear_value_dim; }
  uint32_t conv_channels() const { return 2 * key_width() + value_width(); }
};

// Reads the flat text form (model_type "qwen3_5_text") and the multimodal form (model_type "qwen3_5", sizes in
// "text_config"). Anything this program cannot run exactly (another model_type, scaled RoPE, biases, another activation)
// is refused in one line that names it.
Result<TextConfig> parse_config(std::string_view json);

}  // namespace chorus::formats
