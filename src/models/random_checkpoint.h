// Checkpoints of seeded random numbers in the layout of the hub: for tests and for measuring models larger than memory without a download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace chorus::models {

// Sizes of a mixture-of-experts model with attention in every layer.
struct RandomMoeSizes {
  uint32_t layers = 2, hidden = 64, inner = 32, experts = 8, top_k = 2;
  uint32_t heads = 4, kv_heads = 2, head_dim = 16, vocabulary = 256, context = 4096;
};
// "qwen3_moe" or "olmoe". Errors: unsupported.
Result<std::string> random_moe_config(std::string_view layout, const RandomMoeSizes& sizes);

struct RandomCheckpointOptions {
  uint64_t seed = 1;
  DType dtype = DType::bf16;
  uint64_t shard_bytes_max = 4ull << 30;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes
};

// Writes config.json and the weights that it calls for into a folder, which is made when missing: model.safetensors, or shards with an
// index. No number repeats a pattern and none is zero by design; matrices have standard deviation 1 / sqrt(columns), norms are near their
// neutral value. The same seed gives the same bytes, whatever the shards. Experts as separate or fused tensors; others are unsupported.
Status write_random_checkpoint(const std::filesystem::path& folder, const std::string& config_json, const RandomCheckpointOptions& options);

// Bytes of the weights that this would write.
Result<uint64_t> random_checkpoint_bytes(const std::string& config_json, DType dtype);

}  // namespace chorus::models
