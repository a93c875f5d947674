// The tensors a text backbone consists of: canonical names and shapes, from the configuration alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/config.h"

namespace chorus::formats {

struct WeightShape {
  std::string name;
  std::vector<uint64_t> shape;
};

// Every tensor the backbone needs, in layer order. `lm_head.weight` is not among them: decisions do not use it.
std::vector<WeightShape> backbone_weights(const TextConfig& config);
WeightShape lm_head_weight(const TextConfig& config);

}  // namespace chorus::formats
