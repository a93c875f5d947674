#include "formats/model_files.h"

#include <utility>

#include "base/bytes.h"
#include "base/limits.h"

namespace chorus::formats {
namespace {

constexpr ModelTextFile kTextFiles[] = {
    {"tokenizer.json", &ModelFiles::tokenizer_json},
    {"tokenizer_config.json", &ModelFiles::tokenizer_config_json},
    {"chat_template.jinja", &ModelFiles::chat_template},
    {"generation_config.json", &ModelFiles::generation_config_json},
};

Result<std::string> metadata_text(const TensorStore& store, const std::string& key) {
  const auto found = store.metadata().find(key);
  if (found != store.metadata().end()) return found->second;
  return make_error(ErrorCode::invalid_input, store.path().string() + ": __metadata__ has no " + quote_text(key));
}

Status read_packed(ModelFiles& files) {
  const TensorStore& store = *files.tensors;
  const std::string where = store.path().string();
  const auto format = store.metadata().find("format");
  if (format == store.metadata().end() || format->second != kModelPackFormat) {
    return make_error(ErrorCode::invalid_input,
                      where +
                          ": expected a model folder, or a language model packed by `chorus pack`; found a safetensors "
                          "file without the mark " +
                          quote_text(kModelPackFormat));
  }
  CHORUS_ASSIGN(const std::string version, metadata_text(store, "version"));
  if (version != kModelPackVersion) {
    return make_error(ErrorCode::unsupported,
                      where + ": pack version " + quote_text(version) + ", this program reads " + quote_text(kModelPackVersion));
  }
  CHORUS_ASSIGN(files.config_json, metadata_text(store, "config"));
  for (const auto& file : kTextFiles) {
    const TensorInfo* tensor = store.find(file.name);
    if (tensor == nullptr) continue;
    if (tensor->dtype != FileDType::U8 || tensor->bytes > limits::kTokenizerBytesMax) {
      return make_error(ErrorCode::invalid_input, where + ": tensor " + quote_text(file.name) + ": expected at most " +
                                                      std::to_string(limits::kTokenizerBytesMax) + " elements of U8, found " +
                                                      std::to_string(tensor->elements) + " of " +
                                                      std::string(file_dtype_name(tensor->dtype)));
    }
    files.*file.text = std::string(as_text(store.raw(*tensor)));
  }
  return {};
}

Status read_folder(ModelFiles& files) {
  CHORUS_ASSIGN(files.config_json, read_text_file(files.path / "config.json", limits::kJsonBytesMax));
  for (const auto& file : kTextFiles) {
    const std::filesystem::path path = files.path / file.name;
    if (!name_is_taken(path)) continue;
    CHORUS_ASSIGN(files.*file.text, read_text_file(path, limits::kTokenizerBytesMax));
  }
  return {};
}

}  // namespace

std::span<const ModelTextFile> model_text_files() { return kTextFiles; }

Status check_model_path(const std::filesystem::path& path) {
  if (!path.empty()) return {};
  return make_error(ErrorCode::not_found, "model: expected the path of a folder or packed file, found \"\"");
}

bool is_model_pack(const std::filesystem::path& path) {
  const auto store = TensorStore::open(path);
  if (!store.ok()) return false;
  const auto format = store->metadata().find("format");
  return format != store->metadata().end() && format->second == kModelPackFormat;
}

Result<ModelFiles> open_model_files(const std::filesystem::path& path) {
  std::error_code error;
  ModelFiles files;
  files.path = path;
  files.packed = !std::filesystem::is_directory(path, error);
  CHORUS_ASSIGN(TensorStore store, TensorStore::open(path));
  files.tensors = std::make_shared<const TensorStore>(std::move(store));
  CHORUS_TRY(files.packed ? read_packed(files) : read_folder(files));
  return files;
}

}  // namespace chorus::formats
