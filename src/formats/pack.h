// `chorus pack`: one safetensors file with merged weights, head, tokenizer, configuration and metadata.
//
// Tensors: the canonical names of WeightSource; "pointer_head.{q,k}.{weight,bias}" in F32; "tokenizer.json" as U8.
// Matrices are rounded once to `type`; vectors and convolution kernels stay F32, as the backends keep them.
// __metadata__: "format" = "chorus-pack", "version" = "1", "config" (JSON text), "checkpoint" (JSON text).
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "tensor/dtype.h"

namespace chorus::formats {

inline constexpr std::string_view kPackFormat = "chorus-pack";
inline constexpr std::string_view kPackVersion = "1";

// `tokenizer_json` may be empty for a checkpoint that has no tokenizer. Read back with open_checkpoint(out).
Status write_pack(const Checkpoint& checkpoint, std::string_view tokenizer_json, DType type, const std::filesystem::path& out);

}  // namespace chorus::formats
