#include "formats/pack.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/bytes.h"
#include "base/half.h"
#include "formats/json.h"
#include "formats/pack_reader.h"

namespace chorus::formats {
namespace {

constexpr uint64_t kChunkElements = 1u << 20;  // rows are merged, rounded and written in pieces of about this size

FileDType file_type(DType type) {
  switch (type) {
    case DType::f32:
      return FileDType::F32;
    case DType::f16:
      return FileDType::F16;
    case DType::bf16:
      return FileDType::BF16;
  }
  return FileDType::F32;
}

std::string metadata_text(const CheckpointMetadata& metadata, DType type) {
  JsonValue holdout = JsonValue::array();
  for (const auto& entry : metadata.holdout) holdout.push_back(JsonValue::string(entry));
  JsonValue object = JsonValue::object();
  object.append("weights", JsonValue::string(metadata.weights));
  object.append("base", JsonValue::string(metadata.base));
  object.append("base_revision", metadata.base_revision ? JsonValue::string(*metadata.base_revision) : JsonValue());
  object.append("temperature", JsonValue::floating(metadata.temperature));
  object.append("lora", JsonValue::integer(metadata.lora_rank));
  object.append("weights_dtype", JsonValue::string(std::string(dtype_name(type))));
  object.append("checkpoint_id", JsonValue::string(metadata.checkpoint_id));
  object.append("holdout", std::move(holdout));
  return json_dumps(object);
}

// One rounding, to nearest even. A weight that is finite in f32 and not in `type` is an error.
Status round_to(DType type, std::span<const float> values, std::vector<uint16_t>& out, const std::string& what) {
  constexpr uint16_t kInfinityF16 = 0x7c00;
  constexpr uint16_t kInfinityBf16 = 0x7f80;
  const uint16_t infinity = type == DType::f16 ? kInfinityF16 : kInfinityBf16;
  out.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = type == DType::f16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
    if ((out[i] & 0x7fffu) >= infinity) {
      return make_error(ErrorCode::unsupported, what + ": the value " + std::to_string(values[i]) + " is too large for " +
                                                    std::string(dtype_name(type)) + ": pack with another --dtype");
    }
  }
  return {};
}

Status write_rows(const WeightSource& source, const std::string& name, const MatrixShape& matrix, DType type,
                  const TensorToWrite::Sink& sink) {
  const uint64_t rows_per_chunk = std::max<uint64_t>(1, kChunkElements / std::max<uint64_t>(1, matrix.cols));
  std::vector<float> values;
  std::vector<uint16_t> rounded;
  for (uint64_t row = 0; row < matrix.rows; row += rows_per_chunk) {
    const uint64_t rows = std::min(rows_per_chunk, matrix.rows - row);
    values.resize(rows * matrix.cols);
    CHORUS_TRY(source.read_rows(name, row, rows, values));
    if (type == DType::f32) {
      CHORUS_TRY(sink(std::as_bytes(std::span(values))));
      continue;
    }
    CHORUS_TRY(round_to(type, values, rounded, "weight " + quote_text(name)));
    CHORUS_TRY(sink(std::as_bytes(std::span(rounded))));
  }
  return {};
}

TensorToWrite bytes_tensor(std::string name, FileDType dtype, std::vector<uint64_t> shape, std::span<const std::byte> bytes) {
  return {std::move(name), dtype, std::move(shape), [bytes](const TensorToWrite::Sink& sink) { return sink(bytes); }};
}

void add_head(const PointerHead& head, std::vector<TensorToWrite>& tensors) {
  const std::string prefix = kPackHeadPrefix;
  const std::vector<uint64_t> matrix{head.head_dim, head.hidden_size};
  const std::vector<uint64_t> vector{head.head_dim};
  tensors.push_back(bytes_tensor(prefix + "q.weight", FileDType::F32, matrix, std::as_bytes(std::span(head.q_weight))));
  tensors.push_back(bytes_tensor(prefix + "q.bias", FileDType::F32, vector, std::as_bytes(std::span(head.q_bias))));
  tensors.push_back(bytes_tensor(prefix + "k.weight", FileDType::F32, matrix, std::as_bytes(std::span(head.k_weight))));
  tensors.push_back(bytes_tensor(prefix + "k.bias", FileDType::F32, vector, std::as_bytes(std::span(head.k_bias))));
}

// Merged weights in the place of the weights they were made from could not be undone.
bool is_source_file(const Checkpoint& checkpoint, const std::filesystem::path& out) {
  std::error_code error;
  if (!std::filesystem::exists(out, error)) return false;
  if (std::filesystem::equivalent(out, checkpoint.path, error)) return true;
  const std::filesystem::path folder = std::filesystem::absolute(out, error).parent_path();
  const bool inside =
      std::filesystem::equivalent(folder, checkpoint.path, error) || std::filesystem::equivalent(folder, checkpoint.base_path, error);
  const std::string name = out.filename().string();
  return inside && (name.starts_with("model") || name.starts_with("adapter_") || name.starts_with("head.") || name.ends_with(".json"));
}

}  // namespace

Status write_pack(const Checkpoint& checkpoint, std::string_view tokenizer_json, DType type, const std::filesystem::path& out) {
  if (is_source_file(checkpoint, out)) {
    return make_error(ErrorCode::invalid_argument,
                      out.string() + ": expected another file than those of the checkpoint itself; packing " + checkpoint.path.string());
  }
  std::vector<TensorToWrite> tensors;
  for (const auto& name : checkpoint.weights->names()) {
    CHORUS_ASSIGN(const std::vector<uint64_t> shape, checkpoint.weights->shape(name));
    const DType stored = shape.size() == 2 ? type : DType::f32;
    tensors.push_back(
        {name, file_type(stored), shape, [&source = *checkpoint.weights, name, shape, stored](const TensorToWrite::Sink& sink) {
           return write_rows(source, name, matrix_shape(shape), stored, sink);
         }});
  }
  if (checkpoint.head) add_head(*checkpoint.head, tensors);
  if (!tokenizer_json.empty()) {
    tensors.push_back(bytes_tensor(kPackTokenizerName, FileDType::U8, {tokenizer_json.size()}, as_bytes(tokenizer_json)));
  }
  const std::map<std::string, std::string> metadata{{"format", std::string(kPackFormat)},
                                                    {"version", std::string(kPackVersion)},
                                                    {"config", checkpoint.config_json},
                                                    {"checkpoint", metadata_text(checkpoint.metadata, type)}};
  auto written = write_safetensors(out, metadata, std::move(tensors));
  if (!written.ok()) return std::move(written).error().with_context("packing " + checkpoint.path.string());
  return {};
}

}  // namespace chorus::formats
