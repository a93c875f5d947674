#include "formats/pack_reader.h"

#include <cmath>

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/json.h"
#include "formats/model_files.h"
#include "formats/pack.h"
#include "formats/weight_source.h"

namespace chorus::formats {
namespace {

Result<std::string> require_text(const TensorStore& store, const std::string& key) {
  const auto found = store.metadata().find(key);
  if (found != store.metadata().end()) return found->second;
  return make_error(ErrorCode::invalid_input, store.path().string() + ": __metadata__ has no " + quote_text(key));
}

Status check_format(const TensorStore& store) {
  const auto format = store.metadata().find("format");
  if (format != store.metadata().end() && format->second == kModelPackFormat) {
    return make_error(ErrorCode::unsupported, store.path().string() + ": expected a decision model, found a packed language model");
  }
  if (format == store.metadata().end() || format->second != kPackFormat) {
    return make_error(ErrorCode::invalid_input,
                      store.path().string() +
                          ": expected a folder, or a file made by `chorus pack`; found a safetensors file without the mark " +
                          quote_text(kPackFormat));
  }
  CHORUS_ASSIGN(const std::string version, require_text(store, "version"));
  if (version == kPackVersion) return {};
  return make_error(ErrorCode::unsupported,
                    store.path().string() + ": pack version " + quote_text(version) + ", this program reads " + quote_text(kPackVersion));
}

Result<std::string> optional_text(const JsonValue& object, std::string_view key, const std::string& where) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || value->is_null()) return std::string();
  CHORUS_ASSIGN(const std::string_view text, value->as_string(where + ": " + std::string(key)));
  return std::string(text);
}

Result<CheckpointMetadata> parse_metadata(const std::string& json, const std::string& where) {
  auto parsed = parse_json(json);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading " + where);
  CHORUS_TRY(parsed->as_object(where));
  CheckpointMetadata metadata;
  metadata.form = CheckpointForm::packed;
  CHORUS_ASSIGN(metadata.weights, optional_text(*parsed, "weights", where));
  CHORUS_ASSIGN(metadata.base, optional_text(*parsed, "base", where));
  CHORUS_ASSIGN(const std::string revision, optional_text(*parsed, "base_revision", where));
  if (!revision.empty()) metadata.base_revision = revision;
  CHORUS_ASSIGN(metadata.weights_dtype, optional_text(*parsed, "weights_dtype", where));
  CHORUS_ASSIGN(metadata.checkpoint_id, optional_text(*parsed, "checkpoint_id", where));
  CHORUS_ASSIGN(const JsonValue* temperature, parsed->member("temperature", where));
  CHORUS_ASSIGN(metadata.temperature, temperature->as_double(where + ": temperature"));
  if (!(std::isfinite(metadata.temperature) && metadata.temperature > 0)) {
    return make_error(ErrorCode::invalid_input,
                      where + ": temperature: expected a number above 0, found " + python_float_text(metadata.temperature));
  }
  CHORUS_ASSIGN(const JsonValue* rank, parsed->member("lora", where));
  CHORUS_ASSIGN(const uint64_t rank_value, rank->as_uint64(where + ": lora"));
  metadata.lora_rank = static_cast<uint32_t>(std::min<uint64_t>(rank_value, UINT32_MAX));
  CHORUS_ASSIGN(const JsonValue* holdout, parsed->member("holdout", where));
  CHORUS_ASSIGN(const auto items, holdout->as_array(where + ": holdout"));
  for (const auto& item : items) {
    CHORUS_ASSIGN(const std::string_view text, item.as_string(where + ": holdout"));
    metadata.holdout.emplace_back(text);
  }
  return metadata;
}

Status read_head_part(const TensorStore& store, const std::string& name, const std::vector<uint64_t>& shape, std::vector<float>& out) {
  CHORUS_ASSIGN(const TensorInfo* tensor, store.require(kPackHeadPrefix + name));
  if (tensor->shape != shape) {
    return make_error(ErrorCode::invalid_input, store.path().string() + ": tensor " + quote_text(tensor->name) + ": expected shape " +
                                                    shape_text(shape) + ", found " + shape_text(tensor->shape));
  }
  out.resize(tensor->elements);
  return store.read_f32(*tensor, 0, out);
}

// The head's shape comes from its first bias and the configuration; every part must agree.
Result<std::optional<PointerHead>> read_head(const TensorStore& store, const TextConfig& config) {
  const std::string prefix = kPackHeadPrefix;
  const TensorInfo* bias = store.find(prefix + "q.bias");
  if (bias == nullptr) {
    for (const auto& tensor : store.tensors()) {
      if (tensor.name.starts_with(prefix))
        return make_error(ErrorCode::invalid_input, store.path().string() + ": a part of the pointer head is missing");
    }
    return std::optional<PointerHead>();
  }
  if (bias->shape.size() != 1 || bias->shape[0] < 1 || bias->shape[0] > limits::kModelDimensionMax) {
    return make_error(ErrorCode::invalid_input, store.path().string() + ": tensor " + quote_text(bias->name) +
                                                    ": expected a vector, found shape " + shape_text(bias->shape));
  }
  PointerHead head;
  head.head_dim = static_cast<uint32_t>(bias->shape[0]);
  head.hidden_size = config.hidden_size;
  CHORUS_TRY(read_head_part(store, "q.weight", {head.head_dim, head.hidden_size}, head.q_weight));
  CHORUS_TRY(read_head_part(store, "q.bias", {head.head_dim}, head.q_bias));
  CHORUS_TRY(read_head_part(store, "k.weight", {head.head_dim, head.hidden_size}, head.k_weight));
  CHORUS_TRY(read_head_part(store, "k.bias", {head.head_dim}, head.k_bias));
  return std::optional<PointerHead>(std::move(head));
}

Status read_tokenizer(const TensorStore& store, Checkpoint& checkpoint) {
  const TensorInfo* tensor = store.find(kPackTokenizerName);
  if (tensor == nullptr) return {};
  if (tensor->dtype != FileDType::U8 || tensor->bytes > limits::kTokenizerBytesMax) {
    return make_error(ErrorCode::invalid_input, store.path().string() + ": tensor \"tokenizer.json\": expected at most " +
                                                    std::to_string(limits::kTokenizerBytesMax) + " elements of U8, found " +
                                                    std::to_string(tensor->elements) + " of " +
                                                    std::string(file_dtype_name(tensor->dtype)));
  }
  checkpoint.packed_tokenizer_json = std::string(as_text(store.raw(*tensor)));
  return {};
}

}  // namespace

Result<Checkpoint> open_packed(const std::filesystem::path& path) {
  const std::string where = path.string();
  CHORUS_ASSIGN(TensorStore store, TensorStore::open(path));
  CHORUS_TRY(check_format(store));
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.base_path = path;
  CHORUS_ASSIGN(checkpoint.config_json, require_text(store, "config"));
  auto config = parse_config(checkpoint.config_json);
  if (!config.ok()) return std::move(config).error().with_context("reading the configuration in " + where);
  checkpoint.config = std::move(config).value();
  CHORUS_ASSIGN(const std::string metadata, require_text(store, "checkpoint"));
  CHORUS_ASSIGN(checkpoint.metadata, parse_metadata(metadata, where + ": checkpoint"));
  CHORUS_ASSIGN(checkpoint.head, read_head(store, checkpoint.config));
  if (!checkpoint.head && checkpoint.metadata.weights != checkpoint_form_name(CheckpointForm::base)) {
    return make_error(ErrorCode::invalid_input, where + ": the checkpoint was packed with a pointer head, the file has none");
  }
  CHORUS_TRY(read_tokenizer(store, checkpoint));

  const std::string prefix = kPackHeadPrefix;
  const std::vector<std::string> own{prefix + "q.weight", prefix + "q.bias", prefix + "k.weight", prefix + "k.bias", kPackTokenizerName};
  CHORUS_ASSIGN(StoredWeights weights, open_stored_weights(std::move(store), checkpoint.config, own));
  checkpoint.weights = std::move(weights.source);
  return checkpoint;
}

}  // namespace chorus::formats
