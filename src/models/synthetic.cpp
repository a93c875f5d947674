#include "models/synthetic.h"

#include <algorithm>
#include <map>
#include <string>

namespace chorus::models {

namespace {

struct Geometry {
  std::string_view name;
  uint32_t hidden, layers, feed_forward, query_heads, kv_heads, key_heads, value_heads;
};

constexpr Geometry kGeometries[] = {
    {"kev-0.8b", 1024, 24, 3584, 8, 2, 16, 16},
    {"kev-4b", 2560, 32, 9216, 16, 4, 16, 32},
    {"kev-9b", 4096, 32, 12288, 16, 4, 16, 32},
    {"kev-27b", 5120, 64, 17408, 24, 4, 16, 48},
};

uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

float unit(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Rows are cut from one pool of random values at a start that depends on tensor and row: as fast as copying, and no two rows alike.
class SyntheticWeights final : public formats::WeightSource {
 public:
  SyntheticWeights(const formats::TextConfig& config, uint64_t seed, float scale) : seed_(seed) {
    pool_.resize(kPoolSize);
    const float width = scale * 1.7320508f;  // a uniform of half-width w has standard deviation w / sqrt(3)
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = width * unit(mix(seed + i));
    list_shapes(config);
  }

  bool has(std::string_view name) const override { return shapes_.count(std::string(name)) > 0; }

  Result<std::vector<uint64_t>> shape(std::string_view name) const override {
    auto found = shapes_.find(std::string(name));
    if (found == shapes_.end()) return make_error(ErrorCode::not_found, "synthetic weights: no tensor " + std::string(name));
    return found->second;
  }

  Result<formats::FileDType> stored_type(std::string_view) const override { return formats::FileDType::F32; }

  Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const override {
    CHORUS_ASSIGN(const std::vector<uint64_t> whole, shape(name));
    const formats::MatrixShape matrix = formats::matrix_shape(whole);
    CHORUS_CHECK(first_row + row_count <= matrix.rows && out.size() == row_count * matrix.cols);
    const uint64_t key = seed_ ^ hash_name(name);
    for (uint64_t row = 0; row < row_count; ++row) {
      std::span<float> target = out.subspan(row * matrix.cols, matrix.cols);
      uint64_t at = mix(key + first_row + row) % kPoolSize;
      for (size_t done = 0; done < target.size();) {
        const size_t count = std::min<size_t>(target.size() - done, kPoolSize - at);
        std::copy_n(pool_.begin() + static_cast<ptrdiff_t>(at), count, target.begin() + static_cast<ptrdiff_t>(done));
        done += count;
        at = 0;
      }
    }
    adjust(name, out);
    return {};
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& entry : shapes_) list.push_back(entry.first);
    return list;
  }

 private:
  static constexpr size_t kPoolSize = (1u << 22) + 3;  // odd, so that rows of a power of two do not line up

  // Values outside matrices have their own ordinary ranges.
  static void adjust(std::string_view name, std::span<float> out) {
    if (ends_with(name, "linear_attn.norm.weight")) {
      for (float& value : out) value += 1.0f;
    } else if (ends_with(name, "A_log")) {
      for (float& value : out) value = 0.5f + value;
    } else if (ends_with(name, "conv1d.weight")) {
      for (float& value : out) value = 0.25f + 4 * value;
    }
  }

  void add(const std::string& name, std::vector<uint64_t> shape) { shapes_.emplace(name, std::move(shape)); }

  void list_shapes(const formats::TextConfig& c) {
    const uint64_t d = c.hidden_size;
    add("embed_tokens.weight", {c.vocab_size, d});
    add("norm.weight", {d});
    for (size_t i = 0; i < c.layer_types.size(); ++i) {
      const std::string at = "layers." + std::to_string(i) + ".";
      add(at + "input_layernorm.weight", {d});
      add(at + "post_attention_layernorm.weight", {d});
      add(at + "mlp.gate_proj.weight", {c.intermediate_size, d});
      add(at + "mlp.up_proj.weight", {c.intermediate_size, d});
      add(at + "mlp.down_proj.weight", {d, c.intermediate_size});
      if (c.layer_types[i] == formats::LayerType::full_attention) {
        const uint64_t queries = static_cast<uint64_t>(c.query_heads) * c.head_dim, kv = static_cast<uint64_t>(c.kv_heads) * c.head_dim;
        add(at + "self_attn.q_proj.weight", {2 * queries, d});
        add(at + "self_attn.k_proj.weight", {kv, d});
        add(at + "self_attn.v_proj.weight", {kv, d});
        add(at + "self_attn.o_proj.weight", {d, queries});
        add(at + "self_attn.q_norm.weight", {c.head_dim});
        add(at + "self_attn.k_norm.weight", {c.head_dim});
        continue;
      }
      add(at + "linear_attn.in_proj_qkv.weight", {c.conv_channels(), d});
      add(at + "linear_attn.in_proj_z.weight", {c.value_width(), d});
      add(at + "linear_attn.in_proj_b.weight", {c.linear_value_heads, d});
      add(at + "linear_attn.in_proj_a.weight", {c.linear_value_heads, d});
      add(at + "linear_attn.conv1d.weight", {c.conv_channels(), 1, 4});
      add(at + "linear_attn.A_log", {c.linear_value_heads});
      add(at + "linear_attn.dt_bias", {c.linear_value_heads});
      add(at + "linear_attn.norm.weight", {c.linear_value_dim});
      add(at + "linear_attn.out_proj.weight", {d, c.value_width()});
    }
  }

  uint64_t seed_;
  std::vector<float> pool_;
  std::map<std::string, std::vector<uint64_t>> shapes_;
};

}  // namespace

std::vector<std::string_view> geometry_names() {
  std::vector<std::string_view> names;
  for (const Geometry& entry : kGeometries) names.push_back(entry.name);
  return names;
}

Result<formats::TextConfig> geometry(std::string_view name) {
  std::string known;
  for (const Geometry& entry : kGeometries) {
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
    if (entry.name != name) continue;
    formats::TextConfig config;
    config.model_type = "qwen3_5_text";
    config.hidden_size = entry.hidden;
    config.layers = entry.layers;
    config.intermediate_size = entry.feed_forward;
    config.vocab_size = 248320;
    for (uint32_t i = 0; i < entry.layers; ++i) {
      config.layer_types.push_back(i % 4 == 3 ? formats::LayerType::full_attention : formats::LayerType::linear_attention);
    }
    config.query_heads = entry.query_heads;
    config.kv_heads = entry.kv_heads;
    config.head_dim = 256;
    config.rotary_dim = 64;
    config.rope_theta = 1e7;
    config.linear_key_heads = entry.key_heads;
    config.linear_value_heads = entry.value_heads;
    config.linear_key_dim = 128;
    config.linear_value_dim = 128;
    config.conv_kernel = 4;
    config.rms_epsilon = 1e-6;
    config.tie_word_embeddings = true;
    config.max_positions = 262144;
    return config;
  }
  return make_error(ErrorCode::not_found, "geometry " + std::string(name) + ": not known (known: " + known + ")");
}

std::unique_ptr<formats::WeightSource> synthetic_weights(const formats::TextConfig& config, uint64_t seed, float scale) {
  return std::make_unique<SyntheticWeights>(config, seed, scale);
}

formats::PointerHead synthetic_head(const formats::TextConfig& config, uint64_t seed) {
  formats::PointerHead head;
  head.head_dim = 256;
  head.hidden_size = config.hidden_size;
  uint64_t counter = mix(seed);
  auto fill = [&](std::vector<float>& values, size_t count) {
    values.resize(count);
    for (float& value : values) value = 0.02f * unit(mix(counter++));
  };
  fill(head.q_weight, static_cast<size_t>(head.head_dim) * head.hidden_size);
  fill(head.q_bias, head.head_dim);
  fill(head.k_weight, static_cast<size_t>(head.head_dim) * head.hidden_size);
  fill(head.k_bias, head.head_dim);
  return head;
}

}  // namespace chorus::models
