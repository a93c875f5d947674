// Rotary position embeddings as config.json describes them: rope_parameters, or rope_theta with rope_scaling beside it (older files).
#pragma once

#include <cstdint>

#include "models/blueprint.h"
#include "models/families/config_reader.h"

namespace chorus::models::families {

struct RopeDefaults {
  double theta = 10000;
  double partial_factor = 1;  // share of a head's columns that turn
};

// The frequencies for heads of which at most head_dim columns turn. Types: default, linear, llama3 and yarn.
Result<RopeSpec> read_rope(const ConfigReader& config, uint32_t head_dim, compute::RopeForm form, const RopeDefaults& defaults = {});

// What DeepSeek multiplies its softmax scale by under YaRN: (0.1 * mscale_all_dim * ln(factor) + 1)^2.
Result<double> read_yarn_scale(const ConfigReader& config);

}  // namespace chorus::models::families
