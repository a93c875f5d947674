// The files of a language model behind one interface: a Hugging Face folder, or one file made by `chorus pack`.
// Owns: which file or tensor holds which part. Must not know: what a configuration means, experts.
//
// A packed model is a safetensors file with the checkpoint's tensors under their own names, except experts (experts/expert_pack.h), and
// with
// __metadata__ "format" = kModelPackFormat, "version", "config" (the text of config.json); the other text files are tensors of U8 under
// their file names (docs/expert-pack.md).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/safetensors.h"

namespace chorus::formats {

inline constexpr std::string_view kModelPackFormat = "chorus-model-pack";
inline constexpr std::string_view kModelPackVersion = "1";
// Tensors whose names start so belong to the pack and not to the model.
inline constexpr std::string_view kModelPackPrefix = "chorus.";

struct ModelFiles {
  std::filesystem::path path;
  bool packed = false;
  std::shared_ptr<const TensorStore> tensors;
  std::string config_json;
  std::optional<std::string> tokenizer_json, tokenizer_config_json, chat_template, generation_config_json;
};

// Not empty: an empty path would stand for the working directory.
Status check_model_path(const std::filesystem::path& path);

// Reads the small files whole; maps the tensors. What is optional and not there stays empty.
Result<ModelFiles> open_model_files(const std::filesystem::path& path);

// Whether a file says that it is a packed language model; nothing else of it is checked.
bool is_model_pack(const std::filesystem::path& path);

// Of those four files: name and place in ModelFiles.
struct ModelTextFile {
  const char* name;
  std::optional<std::string> ModelFiles::*text;
};
std::span<const ModelTextFile> model_text_files();

}  // namespace chorus::formats
