// The part of `chorus inspect` for language models.
#pragma once

#include <filesystem>

#include "models/language_checkpoint.h"

namespace chorus::apps {

// Prints and returns the exit code.
int inspect_language(const std::filesystem::path& folder, bool tensors, bool json);

}  // namespace chorus::apps
