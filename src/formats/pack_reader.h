// Opens the file that write_pack makes.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "formats/checkpoint.h"

namespace chorus::formats {

inline constexpr const char* kPackTokenizerName = "tokenizer.json";
inline constexpr const char* kPackHeadPrefix = "pointer_head.";

Result<Checkpoint> open_packed(const std::filesystem::path& path);

}  // namespace chorus::formats
