#include "models/random_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/half.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "models/blueprint_tensors.h"
#include "models/families/read_blueprint.h"

namespace chorus::models {
namespace {

using formats::FileDType;
using formats::JsonValue;
using formats::TensorToWrite;

constexpr uint64_t kChunkElements = 1 << 20;
constexpr float kNormSpread = 0.05f;
constexpr float kBiasSpread = 0.02f;

// SplitMix64 (Steele, Lea, Flood 2014) as a function of a counter.
uint64_t mix(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t seed_of(uint64_t seed, std::string_view name) {
  for (const char c : name) seed = mix(seed ^ static_cast<uint8_t>(c));
  return seed;
}

FileDType file_type(DType type) { return type == DType::f32 ? FileDType::F32 : type == DType::f16 ? FileDType::F16 : FileDType::BF16; }

// Numbers of one tensor: uniform around `middle`, with the given standard deviation.
struct Numbers {
  uint64_t seed = 0;
  float middle = 0, spread = 0;

  // Elements [first, first + out.size()); `first` is a multiple of 4: one draw gives four numbers.
  void fill(uint64_t first, std::span<float> out) const {
    const float step = spread * std::sqrt(3.0f) / 32768;
    for (size_t i = 0; i < out.size(); i += 4) {
      uint64_t draw = mix(seed + (first + i) / 4 + 1);
      for (size_t j = i; j < std::min(i + 4, out.size()); ++j, draw >>= 16) {
        out[j] = middle + step * (static_cast<float>(draw & 0xffff) - 32767.5f);
      }
    }
  }
};

Numbers numbers_of(const NamedShape& tensor, const Blueprint& blueprint, uint64_t seed) {
  Numbers numbers{seed_of(seed, tensor.name), 0, kBiasSpread};
  if (tensor.shape.size() > 1) {
    numbers.spread = 1 / std::sqrt(static_cast<float>(tensor.shape.back()));
  } else if (tensor.name.find("norm") != std::string::npos) {
    numbers.middle = blueprint.norm_form == compute::NormWeight::plain ? 1.0f : 0.0f;
    numbers.spread = kNormSpread;
  }
  return numbers;
}

Status write_numbers(const Numbers& numbers, uint64_t count, DType type, const TensorToWrite::Sink& sink) {
  std::vector<float> values;
  std::vector<uint16_t> rounded;
  for (uint64_t at = 0; at < count; at += kChunkElements) {
    values.resize(std::min(kChunkElements, count - at));
    numbers.fill(at, values);
    if (type == DType::f32) {
      CHORUS_TRY(sink(std::as_bytes(std::span(values))));
      continue;
    }
    rounded.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      rounded[i] = type == DType::f16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
    }
    CHORUS_TRY(sink(std::as_bytes(std::span(rounded))));
  }
  return {};
}

Status add_expert_tensors(const MoeSpec& moe, uint64_t hidden, std::vector<NamedShape>& tensors) {
  const uint64_t inner = moe.inner, experts = moe.experts;
  switch (moe.tensors.form) {
    case ExpertTensors::Form::separate:
      for (uint32_t expert = 0; expert < moe.experts; ++expert) {
        tensors.push_back({expert_tensor_name(moe.tensors.gate, expert), {inner, hidden}});
        tensors.push_back({expert_tensor_name(moe.tensors.up, expert), {inner, hidden}});
        tensors.push_back({expert_tensor_name(moe.tensors.down, expert), {hidden, inner}});
      }
      return {};
    case ExpertTensors::Form::fused:
      tensors.push_back({moe.tensors.gate_up, {experts, 2 * inner, hidden}});
      tensors.push_back({moe.tensors.down, {experts, hidden, inner}});
      return {};
    default:
      return make_error(ErrorCode::unsupported, "random checkpoint: expected experts as separate or fused tensors, found another form");
  }
}

Result<std::vector<NamedShape>> all_tensors(const Blueprint& blueprint) {
  std::vector<NamedShape> tensors = resident_tensors(blueprint);
  for (const auto& layer : blueprint.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) CHORUS_TRY(add_expert_tensors(*moe, blueprint.hidden, tensors));
  }
  return tensors;
}

uint64_t elements_of(const NamedShape& tensor) {
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape) elements *= extent;
  return elements;
}

Result<uint64_t> bytes_of(std::span<const NamedShape> tensors, DType dtype) {
  uint64_t total = 0;
  for (const NamedShape& tensor : tensors) {
    std::optional<uint64_t> bytes = dtype_bytes(dtype);
    for (const uint64_t extent : tensor.shape) bytes = bytes ? checked_multiply(*bytes, extent) : bytes;
    const auto sum = bytes ? checked_add(total, *bytes) : bytes;
    if (!sum) return make_error(ErrorCode::limit_exceeded, "random checkpoint: the weights together do not fit 64 bits");
    total = *sum;
  }
  return total;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text;
}

Status write_text(const std::filesystem::path& path, std::string_view text) {
  CHORUS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  CHORUS_TRY(file.write(as_bytes(text)));
  return file.commit();
}

using Shard = std::vector<NamedShape>;

std::vector<Shard> cut(std::vector<NamedShape> tensors, uint64_t element_bytes, uint64_t shard_bytes_max) {
  std::vector<Shard> shards(1);
  uint64_t bytes = 0;
  for (auto& tensor : tensors) {
    const uint64_t size = elements_of(tensor) * element_bytes;
    if (bytes > 0 && bytes + size > shard_bytes_max) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += size;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

Status write_index(const std::filesystem::path& folder, std::span<const Shard> shards) {
  JsonValue map = JsonValue::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const auto& tensor : shards[i]) map.append(tensor.name, JsonValue::string(shard_name(i, shards.size())));
  }
  JsonValue index = JsonValue::object();
  index.append("metadata", JsonValue::object());
  index.append("weight_map", std::move(map));
  return write_text(folder / "model.safetensors.index.json", formats::json_dumps(index));
}

}  // namespace

Result<std::string> random_moe_config(std::string_view layout, const RandomMoeSizes& sizes) {
  if (layout != "qwen3_moe" && layout != "olmoe") {
    return make_error(ErrorCode::unsupported, "layout: expected qwen3_moe or olmoe, found " + quote_text(layout));
  }
  const bool olmoe = layout == "olmoe";
  JsonValue config = JsonValue::object();
  const auto number = [&](const char* key, uint32_t value) { config.append(key, JsonValue::integer(value)); };
  config.append("model_type", JsonValue::string(std::string(layout)));
  config.append("hidden_act", JsonValue::string("silu"));
  number("vocab_size", sizes.vocabulary);
  number("hidden_size", sizes.hidden);
  number("num_hidden_layers", sizes.layers);
  number("num_attention_heads", sizes.heads);
  number("num_key_value_heads", sizes.kv_heads);
  if (!olmoe) number("head_dim", sizes.head_dim);
  number("num_experts", sizes.experts);
  number("num_experts_per_tok", sizes.top_k);
  number("intermediate_size", sizes.inner);
  if (!olmoe) number("moe_intermediate_size", sizes.inner);
  number("max_position_embeddings", sizes.context);
  config.append("rope_theta", JsonValue::floating(10000.0));
  config.append("rms_norm_eps", JsonValue::floating(1e-6));
  config.append("norm_topk_prob", JsonValue::boolean(!olmoe));
  config.append("attention_bias", JsonValue::boolean(false));
  config.append("tie_word_embeddings", JsonValue::boolean(false));
  return formats::json_dumps(config);
}

Result<uint64_t> random_checkpoint_bytes(const std::string& config_json, DType dtype) {
  CHORUS_ASSIGN(const Blueprint blueprint, read_blueprint(config_json));
  CHORUS_ASSIGN(const std::vector<NamedShape> tensors, all_tensors(blueprint));
  return bytes_of(tensors, dtype);
}

Status write_random_checkpoint(const std::filesystem::path& folder, const std::string& config_json,
                               const RandomCheckpointOptions& options) {
  CHORUS_ASSIGN(const Blueprint blueprint, read_blueprint(config_json));
  CHORUS_ASSIGN(std::vector<NamedShape> tensors, all_tensors(blueprint));
  CHORUS_ASSIGN(const uint64_t total, bytes_of(tensors, options.dtype));
  uint64_t done = 0;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return make_error(ErrorCode::io_failed, folder.string() + ": cannot make the folder: " + error.message());
  const auto shards = cut(std::move(tensors), dtype_bytes(options.dtype), options.shard_bytes_max);
  for (size_t i = 0; i < shards.size(); ++i) {
    std::vector<TensorToWrite> to_write;
    for (const auto& tensor : shards[i]) {
      to_write.push_back({tensor.name, file_type(options.dtype), tensor.shape, [&](const TensorToWrite::Sink& sink) -> Status {
                            CHORUS_TRY(
                                write_numbers(numbers_of(tensor, blueprint, options.seed), elements_of(tensor), options.dtype, sink));
                            done += elements_of(tensor) * dtype_bytes(options.dtype);
                            if (options.progress) options.progress(done, total);
                            return {};
                          }});
    }
    CHORUS_TRY(formats::write_safetensors(folder / shard_name(i, shards.size()), {{"format", "pt"}}, std::move(to_write)));
  }
  if (shards.size() > 1) CHORUS_TRY(write_index(folder, shards));
  return write_text(folder / "config.json", config_json);
}

}  // namespace chorus::models
