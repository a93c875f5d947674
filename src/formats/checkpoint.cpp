#include "formats/checkpoint.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/adapter.h"
#include "formats/base_lookup.h"
#include "formats/model_files.h"
#include "formats/pack_reader.h"
#include "formats/weight_source.h"

namespace chorus::formats {
namespace {

namespace fs = std::filesystem;

// Configuration and stored weights of a folder with config.json.
Status open_model_folder(const fs::path& folder, Checkpoint& checkpoint) {
  const fs::path config_path = folder / "config.json";
  CHORUS_ASSIGN(checkpoint.config_json, read_text_file(config_path, limits::kJsonBytesMax));
  auto config = parse_config(checkpoint.config_json);
  if (!config.ok()) return std::move(config).error().with_context("reading " + config_path.string());
  checkpoint.config = std::move(config).value();
  CHORUS_ASSIGN(TensorStore store, TensorStore::open(folder));
  CHORUS_ASSIGN(StoredWeights weights, open_stored_weights(std::move(store), checkpoint.config));
  checkpoint.weights = std::move(weights.source);
  checkpoint.ignored_tensors = std::move(weights.ignored);
  checkpoint.base_path = folder;
  return {};
}

std::optional<fs::path> find_head(const fs::path& folder) {
  for (const char* name : {"head.pt", "head.safetensors"}) {
    if (name_is_taken(folder / name)) return folder / name;
  }
  return std::nullopt;
}

// The head file must have been made for weights of this form.
Status check_weights_kind(const HeadMetadata& head, std::string_view form, const fs::path& head_path) {
  if (head.weights && *head.weights != form) {
    return make_error(ErrorCode::invalid_input, head_path.string() + ": weights: the folder has the " + std::string(form) +
                                                    " form, found " + quote_text(*head.weights));
  }
  if (form == "full" && (!head.weights || head.lora_rank != 0)) {
    return make_error(ErrorCode::invalid_input, head_path.string() + ": expected weights \"full\" and lora 0 beside full weights, found " +
                                                    (head.weights ? quote_text(*head.weights) : std::string("no weights entry")) +
                                                    " and lora " + std::to_string(head.lora_rank));
  }
  return {};
}

Status take_head(HeadFile file, const fs::path& head_path, Checkpoint& checkpoint) {
  if (file.head.hidden_size != checkpoint.config.hidden_size) {
    return make_error(ErrorCode::invalid_input, head_path.string() + ": the head takes vectors of " +
                                                    std::to_string(file.head.hidden_size) + ", the model's hidden_size is " +
                                                    std::to_string(checkpoint.config.hidden_size));
  }
  checkpoint.head = std::move(file.head);
  CheckpointMetadata& metadata = checkpoint.metadata;
  metadata.base = std::move(file.metadata.base);
  metadata.base_revision = std::move(file.metadata.base_revision);
  metadata.temperature = file.metadata.temperature;
  metadata.lora_rank = file.metadata.lora_rank;
  metadata.weights_dtype = std::move(file.metadata.weights_dtype);
  metadata.checkpoint_id = std::move(file.checkpoint_id);
  metadata.holdout = std::move(file.metadata.holdout);
  return {};
}

void take_tokenizer(const fs::path& folder, Checkpoint& checkpoint) {
  if (name_is_taken(folder / "tokenizer.json")) checkpoint.tokenizer_path = folder / "tokenizer.json";
}

Result<Checkpoint> open_lora(const fs::path& folder, const OpenOptions& options) {
  const fs::path adapter_path = folder / "adapter_config.json";
  CHORUS_ASSIGN(const std::string adapter_json, read_text_file(adapter_path, limits::kJsonBytesMax));
  CHORUS_ASSIGN(AdapterConfig adapter, parse_adapter_config(adapter_json, adapter_path.string()));
  const auto head_path = find_head(folder);
  if (!head_path)
    return make_error(ErrorCode::not_found,
                      folder.string() + ": expected head.pt or head.safetensors beside adapter_config.json, found neither");
  CHORUS_ASSIGN(HeadFile head, read_head_file(*head_path));
  CHORUS_TRY(check_weights_kind(head.metadata, "lora", *head_path));
  if (head.metadata.lora_rank != 0 && head.metadata.lora_rank != adapter.rank) {
    return make_error(ErrorCode::invalid_input, head_path->string() + ": lora " + std::to_string(head.metadata.lora_rank) +
                                                    ", but adapter_config.json has r " + std::to_string(adapter.rank));
  }
  const auto revision = head.metadata.base_revision ? head.metadata.base_revision : adapter.revision;
  CHORUS_ASSIGN(const fs::path base, find_base({folder, adapter.base.empty() ? head.metadata.base : adapter.base, revision, options.base}));
  if (name_is_taken(base / "adapter_config.json")) {
    return make_error(ErrorCode::unsupported, base.string() + ": the base is an adapter itself, expected a folder with full weights");
  }
  Checkpoint checkpoint;
  checkpoint.path = folder;
  CHORUS_TRY(open_model_folder(base, checkpoint));
  CHORUS_TRY(take_head(std::move(head), *head_path, checkpoint));
  CHORUS_ASSIGN(TensorStore tensors, TensorStore::open(folder / "adapter_model.safetensors"));
  CHORUS_ASSIGN(checkpoint.weights, merge_adapter(std::move(checkpoint.weights), std::move(tensors), adapter));
  // Always the base's: checkpoints may carry tokenizer files with other ids (kev.md 3.3).
  take_tokenizer(base, checkpoint);
  checkpoint.metadata.form = CheckpointForm::lora;
  checkpoint.metadata.weights = "lora";
  checkpoint.metadata.lora_rank = adapter.rank;
  if (checkpoint.metadata.base.empty()) checkpoint.metadata.base = adapter.base;
  return checkpoint;
}

Result<Checkpoint> open_full_or_base(const fs::path& folder, const OpenOptions& options) {
  Checkpoint checkpoint;
  checkpoint.path = folder;
  const auto head_path = find_head(folder);
  if (head_path) {
    CHORUS_ASSIGN(HeadFile head, read_head_file(*head_path));
    CHORUS_TRY(check_weights_kind(head.metadata, "full", *head_path));
    CHORUS_TRY(open_model_folder(folder, checkpoint));
    CHORUS_TRY(take_head(std::move(head), *head_path, checkpoint));
  } else {
    CHORUS_TRY(open_model_folder(folder, checkpoint));
  }
  take_tokenizer(options.base.value_or(folder), checkpoint);
  checkpoint.metadata.form = head_path ? CheckpointForm::full : CheckpointForm::base;
  checkpoint.metadata.weights = checkpoint_form_name(checkpoint.metadata.form);
  return checkpoint;
}

}  // namespace

MatrixShape matrix_shape(std::span<const uint64_t> shape) {
  if (shape.empty()) return {1, 1};
  if (shape.size() == 1) return {1, shape[0]};
  MatrixShape matrix{shape[0], 1};
  for (const uint64_t extent : shape.subspan(1)) matrix.cols *= extent;
  return matrix;
}

std::string_view checkpoint_form_name(CheckpointForm form) {
  switch (form) {
    case CheckpointForm::base:
      return "base";
    case CheckpointForm::lora:
      return "lora";
    case CheckpointForm::full:
      return "full";
    case CheckpointForm::packed:
      return "packed";
  }
  return "?";
}

Result<std::string> Checkpoint::tokenizer_json() const {
  if (packed_tokenizer_json) return *packed_tokenizer_json;
  if (tokenizer_path.empty()) return make_error(ErrorCode::not_found, base_path.string() + ": no tokenizer.json");
  return read_text_file(tokenizer_path, limits::kTokenizerBytesMax);
}

Result<Checkpoint> open_checkpoint(const fs::path& path, const OpenOptions& options) {
  CHORUS_TRY(check_model_path(path));
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) return make_error(ErrorCode::not_found, path.string() + ": no such file or folder");
  if (!fs::is_directory(status)) return open_packed(path);
  if (name_is_taken(path / "adapter_config.json")) return open_lora(path, options);
  if (name_is_taken(path / "config.json")) return open_full_or_base(path, options);
  return make_error(ErrorCode::not_found, path.string() + ": expected adapter_config.json or config.json in the folder, found neither");
}

}  // namespace chorus::formats
