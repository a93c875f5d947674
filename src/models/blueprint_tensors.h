// The tensors that a blueprint names, with their shapes: what a checkpoint has to hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/blueprint.h"

namespace chorus::models {

struct NamedShape {
  std::string name;
  std::vector<uint64_t> shape;
};

// Everything but the routed experts, each once.
std::vector<NamedShape> resident_tensors(const Blueprint& blueprint);

// Names of the routed experts' tensors of one layer.
std::vector<std::string> expert_tensors(const MoeSpec& moe);

// The name of an expert's tensor: {E} replaced.
std::string expert_tensor_name(const std::string& pattern, uint32_t expert);

}  // namespace chorus::models
