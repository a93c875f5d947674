// Where the base model of an adapter lies on this machine. Nothing is downloaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"

namespace chorus::formats {

struct BaseRequest {
  std::filesystem::path adapter_folder;
  std::string name;                            // "ORG/NAME" or the path of a folder; from the checkpoint's files
  std::optional<std::string> revision;         // of the Hugging Face cache; refs/main when absent
  std::optional<std::filesystem::path> given;  // --base
};

// The folder with config.json: the given one; else the name as a path, inside the adapter's folder, beside it, or from the
// working folder; else the Hugging Face cache (HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
// ~/.cache/huggingface/hub). The error lists every place that was tried.
Result<std::filesystem::path> find_base(const BaseRequest& request);

}  // namespace chorus::formats
