// The shape of a layer's experts, from the model's description alone.
#pragma once

#include <cstdint>
#include <variant>

#include "compute/backend.h"
#include "models/blueprint.h"

namespace chorus::experts {

// `inner` is 0 when the layer's feed-forward is dense.
inline compute::ExpertShape expert_shape(const models::Blueprint& blueprint, uint32_t layer, DType dtype) {
  const auto* moe = std::get_if<models::MoeSpec>(&blueprint.layers[layer].feed_forward);
  if (!moe) return {blueprint.hidden, 0, dtype, false};
  return {blueprint.hidden, moe->inner, dtype, !moe->tensors.gate_up_bias.empty()};
}

}  // namespace chorus::experts
