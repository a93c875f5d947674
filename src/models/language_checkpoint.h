// A language model's files, a folder with config.json and safetensors or one packed file, checked against each other.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/model_files.h"
#include "formats/safetensors.h"
#include "models/blueprint.h"

namespace chorus::models {

struct LanguageCheckpoint {
  std::filesystem::path path;
  formats::ModelFiles files;  // tokenizer, chat template and other texts
  std::string config_json;
  Blueprint blueprint;  // with the names that the files have
  std::shared_ptr<const formats::TensorStore> store;
  std::unique_ptr<formats::WeightSource> weights;  // everything but the routed experts, by the blueprint's names
  std::vector<std::string> ignored_tensors;        // vision and multi-token-prediction parts, sorted
};

// Every tensor that the blueprint names is there, those of `weights` with their shapes (the stores of src/experts check the experts'); a
// tensor that belongs to nothing is an error. Reads no weights.
Result<LanguageCheckpoint> open_language_checkpoint(const std::filesystem::path& folder_or_file);

// Whether config.json of a folder names an architecture that read_blueprint takes: a language model. False without a config.json.
bool is_language_folder(const std::filesystem::path& folder);

}  // namespace chorus::models
