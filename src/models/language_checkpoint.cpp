#include "models/language_checkpoint.h"

#include <algorithm>
#include <unordered_set>

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/weight_source.h"
#include "models/blueprint_tensors.h"
#include "models/families/read_blueprint.h"

namespace chorus::models {

namespace {

using formats::TensorInfo;
using formats::TensorStore;

constexpr std::string_view kRotaryBuffer = "rotary_emb.inv_freq";  // old files store the table that RoPE derives anyway

Status check_resident(const TensorStore& store, const NamedShape& expected) {
  CHORUS_ASSIGN(const TensorInfo* tensor, store.require(expected.name));
  const std::string where = store.path().string();
  if (tensor->shape != expected.shape) {
    return make_error(ErrorCode::invalid_input, where + ": tensor " + quote_text(tensor->name) + ": config.json calls for shape " +
                                                    formats::shape_text(expected.shape) + ", found " + formats::shape_text(tensor->shape));
  }
  return formats::check_weight_type(*tensor, where);
}

bool is_ignored(const std::string& name, const Blueprint& blueprint) {
  if (name.ends_with(kRotaryBuffer)) return true;
  const auto& prefixes = blueprint.ignored_prefixes;
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) { return name.starts_with(prefix); });
}

// Tensors that belong to nothing: ignored ones are listed, others are an error.
Result<std::vector<std::string>> list_ignored(const TensorStore& store, const Blueprint& blueprint,
                                              const std::unordered_set<std::string>& taken) {
  std::vector<std::string> ignored;
  for (const TensorInfo& tensor : store.tensors()) {
    if (taken.contains(tensor.name)) continue;
    if (!is_ignored(tensor.name, blueprint)) {
      return make_error(ErrorCode::unsupported, store.path().string() + ": tensor " + quote_text(tensor.name) + " " +
                                                    formats::shape_text(tensor.shape) +
                                                    " is not part of the model that config.json describes");
    }
    ignored.push_back(tensor.name);
  }
  std::sort(ignored.begin(), ignored.end());
  return ignored;
}

// Before the weights are looked for: an architecture that is not supported is the better error.
Status check_architecture(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "config.json";
  CHORUS_ASSIGN(const std::string config, read_text_file(config_path, limits::kJsonBytesMax));
  auto known = read_blueprint(config);
  if (!known) return std::move(known).error().with_context("reading " + config_path.string());
  return {};
}

// The tensors of the routed experts, or those that stand for them and for text files in a packed model.
Status take_other_tensors(const LanguageCheckpoint& checkpoint, std::unordered_set<std::string>& taken) {
  if (checkpoint.files.packed) {
    for (const TensorInfo& tensor : checkpoint.store->tensors()) {
      if (tensor.name.starts_with(formats::kModelPackPrefix)) taken.insert(tensor.name);
    }
    for (const auto& file : formats::model_text_files()) taken.insert(file.name);
    return {};
  }
  for (const LayerSpec& layer : checkpoint.blueprint.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
    if (!moe) continue;
    for (std::string& name : expert_tensors(*moe)) {
      CHORUS_TRY(checkpoint.store->require(name));
      taken.insert(std::move(name));
    }
  }
  return {};
}

}  // namespace

Result<LanguageCheckpoint> open_language_checkpoint(const std::filesystem::path& folder_or_file) {
  CHORUS_TRY(formats::check_model_path(folder_or_file));
  std::error_code code;
  if (std::filesystem::is_directory(folder_or_file, code)) CHORUS_TRY(check_architecture(folder_or_file));
  LanguageCheckpoint checkpoint;
  checkpoint.path = folder_or_file;
  CHORUS_ASSIGN(checkpoint.files, formats::open_model_files(folder_or_file));
  checkpoint.config_json = checkpoint.files.config_json;
  checkpoint.store = checkpoint.files.tensors;
  const TensorStore& store = *checkpoint.store;
  auto blueprint = read_blueprint(checkpoint.config_json, [&](const std::string& name) { return store.find(name) != nullptr; });
  if (!blueprint) return std::move(blueprint).error().with_context("reading the configuration of " + folder_or_file.string());
  checkpoint.blueprint = std::move(blueprint).value();

  formats::StoredNames names;
  std::unordered_set<std::string> taken;
  for (const NamedShape& expected : resident_tensors(checkpoint.blueprint)) {
    CHORUS_TRY(check_resident(store, expected));
    names.emplace(expected.name, expected.name);
    taken.insert(expected.name);
  }
  CHORUS_TRY(take_other_tensors(checkpoint, taken));
  CHORUS_ASSIGN(checkpoint.ignored_tensors, list_ignored(store, checkpoint.blueprint, taken));
  CHORUS_ASSIGN(checkpoint.weights, formats::make_weight_source(checkpoint.store, names));
  return checkpoint;
}

bool is_language_folder(const std::filesystem::path& folder) {
  const auto config = read_text_file(folder / "config.json", limits::kJsonBytesMax);
  return config.ok() && read_blueprint(*config).ok();
}

}  // namespace chorus::models
