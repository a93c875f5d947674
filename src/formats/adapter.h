// A PEFT LoRA adapter: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"

namespace chorus::formats {

struct AdapterConfig {
  std::string base;  // base_model_name_or_path; may be empty
  std::optional<std::string> revision;
  uint32_t rank = 0;
  double scaling = 0;  // alpha / r, or alpha / sqrt(r) with rsLoRA
  // Last parts of the module names that carry an adapter; empty when the file selects modules in another way.
  std::vector<std::string> target_modules;
};

// Anything that changes what the adapter computes and is not plain LoRA on linear layers is refused by name.
Result<AdapterConfig> parse_adapter_config(std::string_view json, std::string_view where);

// W' = W + scaling * (B A), in f32, made while reading. Checks that every adapter tensor has a base weight of the fitting
// shape, and that every weight named by target_modules has an adapter.
Result<std::unique_ptr<WeightSource>> merge_adapter(std::unique_ptr<WeightSource> base, TensorStore adapter, const AdapterConfig& config);

}  // namespace chorus::formats
