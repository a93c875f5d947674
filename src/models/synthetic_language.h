// Language models without files: published geometries of mixture-of-experts models and seeded weights, made as fast as memory is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/blueprint.h"
#include "tensor/dtype.h"

namespace chorus::models {

std::vector<std::string_view> language_geometry_names();
// config.json with the sizes of a published model. Errors: not_found, naming the known ones.
Result<std::string> language_geometry_config(std::string_view name);

// Everything but the routed experts, by the blueprint's names: matrices with standard deviation 1 / sqrt(columns), norms near their neutral
// value, decays of ordinary size. Rows are cut from one pool at places that depend on seed, tensor and row. `blueprint` must outlive it.
std::unique_ptr<formats::WeightSource> synthetic_language_weights(const Blueprint& blueprint, uint64_t seed);

// Records of routed experts from one pool in `dtype`.
class SyntheticExperts {
 public:
  SyntheticExperts(const Blueprint& blueprint, DType dtype, uint64_t seed);
  // Fills a compute::ExpertRecord of that layer's shape. Errors: invalid_argument.
  Status fill(uint32_t layer, uint32_t expert, std::span<std::byte> record) const;

 private:
  const Blueprint& blueprint_;
  DType dtype_;
  uint64_t seed_;
  std::vector<std::byte> pool_;
};

}  // namespace chorus::models
