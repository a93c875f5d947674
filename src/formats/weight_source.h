// Weights of a TensorStore under their canonical names.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/config.h"
#include "formats/safetensors.h"

namespace chorus::formats {

// What stands before "layers.0..." in the names of a checkpoint: nothing in Kev's full-weight form and in packs, "model." in
// text models, the others in multimodal models and MLX copies. Longer prefixes first.
inline constexpr std::array<std::string_view, 4> kBackbonePrefixes = {"model.language_model.", "language_model.model.", "model.", ""};

struct StoredWeights {
  std::unique_ptr<WeightSource> source;
  std::vector<std::string> ignored;  // vision, multi-token prediction and other parts that decisions do not use
};

// Finds the prefix, checks that each tensor of the backbone is there with its shape and a type that can be read, and refuses
// tensors that stand among the backbone's and are not part of it. `also_ignored` names tensors that belong to the caller.
Result<StoredWeights> open_stored_weights(TensorStore store, const TextConfig& config, std::span<const std::string> also_ignored = {});

// Weights by a name of the caller's choice: name -> the tensor's name in the store.
using StoredNames = std::map<std::string, std::string, std::less<>>;
Result<std::unique_ptr<WeightSource>> make_weight_source(std::shared_ptr<const TensorStore> store, const StoredNames& stored_names);

Status check_weight_type(const TensorInfo& tensor, std::string_view where);
// An error naming `what` and the element (first + index) unless every value is finite.
Status check_finite(std::span<const float> values, std::string_view what, uint64_t first);

}  // namespace chorus::formats
