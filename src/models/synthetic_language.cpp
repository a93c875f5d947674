#include "models/synthetic_language.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <variant>

#include "base/half.h"
#include "compute/backend.h"
#include "models/blueprint_tensors.h"

namespace chorus::models {

namespace {

constexpr size_t kPoolSize = (1u << 22) + 3;  // odd, so that rows of a power of two do not line up

// The sizes that the models' own config.json files give.
struct Geometry {
  std::string_view name, config;
};
constexpr Geometry kGeometries[] = {
    {"olmoe-1b-7b",
     R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
"num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false, "vocab_size": 50304, "hidden_act": "silu",
"max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "attention_bias": false, "clip_qkv": null,
"tie_word_embeddings": false, "eos_token_id": 50279})"},
    {"qwen3-30b-a3b",
     R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
"decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "hidden_act": "silu", "max_position_embeddings": 40960,
"rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "attention_bias": false, "use_sliding_window": false, "sliding_window": null,
"tie_word_embeddings": false, "eos_token_id": 151645})"},
    {"qwen3.5-35b-a3b",
     R"({"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
"num_hidden_layers": 40, "full_attention_interval": 4, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
"linear_num_value_heads": 32, "num_experts": 256, "num_experts_per_tok": 8, "vocab_size": 248320, "hidden_act": "silu",
"max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "attention_bias": false, "partial_rotary_factor": 0.25,
"rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": true,
"mrope_section": [11, 11, 10]}, "tie_word_embeddings": false, "eos_token_id": 248044, "layer_types": [LAYER_TYPES]})"},
};

std::string layer_types(uint32_t layers) {
  std::string text;
  for (uint32_t i = 0; i < layers; ++i)
    text += std::string(i > 0 ? ", " : "") + (i % 4 == 3 ? "\"full_attention\"" : "\"linear_attention\"");
  return text;
}

uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Uniform with standard deviation 1.
std::vector<float> make_pool(uint64_t seed) {
  std::vector<float> pool(kPoolSize);
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = 1.7320508f * (static_cast<float>(mix(seed + i) >> 40) * 0x1p-23f - 1.0f);
  return pool;
}

class LanguageWeights final : public formats::WeightSource {
 public:
  LanguageWeights(const Blueprint& blueprint, uint64_t seed) : blueprint_(blueprint), seed_(seed), pool_(make_pool(seed)) {
    for (NamedShape& tensor : resident_tensors(blueprint)) shapes_.emplace(std::move(tensor.name), std::move(tensor.shape));
  }

  bool has(std::string_view name) const override { return shapes_.count(std::string(name)) > 0; }
  Result<std::vector<uint64_t>> shape(std::string_view name) const override {
    const auto found = shapes_.find(std::string(name));
    if (found == shapes_.end()) return make_error(ErrorCode::not_found, "synthetic weights: no tensor " + std::string(name));
    return found->second;
  }
  Result<formats::FileDType> stored_type(std::string_view) const override { return formats::FileDType::F32; }
  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& entry : shapes_) list.push_back(entry.first);
    return list;
  }

  Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const override {
    CHORUS_ASSIGN(const std::vector<uint64_t> whole, shape(name));
    const formats::MatrixShape matrix = formats::matrix_shape(whole);
    CHORUS_CHECK(first_row + row_count <= matrix.rows && out.size() == row_count * matrix.cols);
    const uint64_t key = seed_ ^ hash_name(name);
    for (uint64_t row = 0; row < row_count; ++row) {
      std::span<float> target = out.subspan(row * matrix.cols, matrix.cols);
      uint64_t at = mix(key + first_row + row) % kPoolSize;
      for (size_t done = 0; done < target.size(); at = 0) {
        const size_t count = std::min<size_t>(target.size() - done, kPoolSize - at);
        std::copy_n(pool_.begin() + static_cast<ptrdiff_t>(at), count, target.begin() + static_cast<ptrdiff_t>(done));
        done += count;
      }
    }
    const auto [middle, spread] = range_of(name, whole);
    for (float& value : out) value = middle + spread * value;
    return {};
  }

 private:
  // Middle and standard deviation.
  std::pair<float, float> range_of(std::string_view name, const std::vector<uint64_t>& whole) const {
    const auto holds = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (holds("conv1d")) return {0.25f, 0.1f};
    if (holds("A_log")) return {0.5f, 0.02f};
    if (whole.size() > 1) return {0.0f, 1 / std::sqrt(static_cast<float>(whole.back()))};
    if (holds("linear_attn.norm")) return {1.0f, 0.02f};
    if (holds("norm")) return {blueprint_.norm_form == compute::NormWeight::plain ? 1.0f : 0.0f, 0.02f};
    return {0.0f, 0.02f};
  }

  const Blueprint& blueprint_;
  uint64_t seed_;
  std::vector<float> pool_;
  std::map<std::string, std::vector<uint64_t>> shapes_;
};

}  // namespace

std::vector<std::string_view> language_geometry_names() {
  std::vector<std::string_view> names;
  for (const Geometry& geometry : kGeometries) names.push_back(geometry.name);
  return names;
}

Result<std::string> language_geometry_config(std::string_view name) {
  std::string known;
  for (const Geometry& geometry : kGeometries) {
    known += (known.empty() ? "" : ", ") + std::string(geometry.name);
    if (geometry.name != name) continue;
    std::string config(geometry.config);
    constexpr std::string_view kPlace = "LAYER_TYPES";
    if (const size_t at = config.find(kPlace); at != std::string::npos) config.replace(at, kPlace.size(), layer_types(40));
    return config;
  }
  return make_error(ErrorCode::not_found, "geometry " + std::string(name) + ": not known, and no such model (known: " + known + ")");
}

std::unique_ptr<formats::WeightSource> synthetic_language_weights(const Blueprint& blueprint, uint64_t seed) {
  return std::make_unique<LanguageWeights>(blueprint, seed);
}

SyntheticExperts::SyntheticExperts(const Blueprint& blueprint, DType dtype, uint64_t seed)
    : blueprint_(blueprint), dtype_(dtype), seed_(seed) {
  const float scale = 1 / std::sqrt(static_cast<float>(blueprint.hidden));
  const std::vector<float> values = make_pool(seed ^ 0x5eed);
  pool_.resize(values.size() * dtype_bytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = scale * values[i];
    const uint16_t half = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
    if (dtype == DType::f32) {
      std::memcpy(pool_.data() + 4 * i, &value, 4);
    } else {
      std::memcpy(pool_.data() + 2 * i, &half, 2);
    }
  }
}

Status SyntheticExperts::fill(uint32_t layer, uint32_t expert, std::span<std::byte> record) const {
  const auto* moe = layer < blueprint_.layers.size() ? std::get_if<MoeSpec>(&blueprint_.layers[layer].feed_forward) : nullptr;
  if (moe == nullptr || expert >= moe->experts)
    return make_error(ErrorCode::invalid_argument, "synthetic experts: there is no such expert");
  const compute::ExpertShape shape{blueprint_.hidden, moe->inner, dtype_, !moe->tensors.gate_up_bias.empty()};
  const compute::ExpertRecord layout(shape);
  if (record.size() < layout.bytes) return make_error(ErrorCode::invalid_argument, "synthetic experts: the record is too small");
  const uint64_t width = dtype_bytes(dtype_);
  std::fill(record.begin(), record.begin() + static_cast<ptrdiff_t>(layout.bytes), std::byte{0});
  uint64_t draw = mix(seed_ ^ (uint64_t{layer} << 32 | expert));
  const auto fill_rows = [&](uint64_t offset, uint64_t rows, uint64_t cols, uint64_t padded) {
    for (uint64_t row = 0; row < rows; ++row) {
      draw = mix(draw);
      const uint64_t at = draw % (kPoolSize - std::min<uint64_t>(cols, kPoolSize - 1));
      const uint64_t count = std::min<uint64_t>(cols, kPoolSize - at);
      std::memcpy(record.data() + offset + row * padded * width, pool_.data() + at * width, count * width);
    }
  };
  fill_rows(0, uint64_t{2} * shape.inner, shape.hidden, layout.hidden_padded);
  fill_rows(layout.down_offset, shape.hidden, shape.inner, layout.inner_padded);
  return {};
}

}  // namespace chorus::models
