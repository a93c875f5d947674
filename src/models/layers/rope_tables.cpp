// Cosines and sines of the rotary embeddings that layers name by index. Must not know layers.
#include <cmath>

#include "models/layers/layer.h"

namespace chorus::models::layers {

size_t RopeTables::add(const RopeSpec& rope) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i].inverse_frequencies == rope.inverse_frequencies && tables_[i].factor == rope.factor) return i;
  }
  tables_.push_back(rope);
  return tables_.size() - 1;
}

void RopeTables::fill(size_t index, uint32_t position, std::span<float> cosine, std::span<float> sine) const {
  const RopeSpec& rope = tables_[index];
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const float angle = rope.inverse_frequencies[i] * static_cast<float>(position);
    cosine[i] = std::cos(angle) * rope.factor;
    sine[i] = std::sin(angle) * rope.factor;
  }
}

}  // namespace chorus::models::layers
