// Models without files: published geometries and seeded random weights, so that speed can be measured without a download.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/config.h"

namespace chorus::models {

// Names that `geometry` knows ("kev-0.8b", "kev-4b", ...).
std::vector<std::string_view> geometry_names();
// Sizes of Qwen3.5 dense text models (kev.md 6.1). Errors: not_found, naming the known ones.
Result<formats::TextConfig> geometry(std::string_view name);

// Weights drawn from a seed: matrices and convolutions uniform with standard deviation `scale`, norm offsets near 0 (near 1 where the
// model multiplies by the plain weight), decays of ordinary size. The same seed gives the same bits everywhere.
std::unique_ptr<formats::WeightSource> synthetic_weights(const formats::TextConfig& config, uint64_t seed, float scale = 0.02f);
formats::PointerHead synthetic_head(const formats::TextConfig& config, uint64_t seed);

}  // namespace chorus::models
