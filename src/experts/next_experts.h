// A guess at the next layer's experts from this layer's, by how often they were chosen together. Pure; never changes a result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/expert_store.h"

namespace chorus::experts {

class NextExperts {
 public:
  explicit NextExperts(std::span<const uint32_t> experts_per_layer);

  // The experts that one row chose in a layer, and in the next layer with experts.
  void note(uint32_t layer, std::span<const uint32_t> here, std::span<const uint32_t> next);
  // The layer after `layer` that has experts; the first one when there is none.
  uint32_t next_layer(uint32_t layer) const { return next_[layer]; }
  // At most `count` experts of next_layer(layer), the likeliest first; only those seen before.
  std::vector<ExpertKey> likely(uint32_t layer, std::span<const uint32_t> here, size_t count) const;

 private:
  std::vector<uint32_t> experts_, next_;    // per layer
  std::vector<std::vector<uint8_t>> seen_;  // per layer: [here][next], halved when one is full
};

// Whether guesses pay: a wrong one costs the disk's time and another expert's place. Made while at least half of the last ones came true;
// otherwise one call in kTryEvery makes some, to see whether the text has changed.
class GuessJudge {
 public:
  static constexpr uint64_t kWindow = 64;
  static constexpr uint64_t kTryEvery = 16;

  // begun and used: of all guesses since the start.
  bool worth_making(uint64_t begun, uint64_t used);

 private:
  uint64_t begun_ = 0, used_ = 0;  // at the start of the window
  uint64_t calls_ = 0;
  bool pay_ = true;
};

}  // namespace chorus::experts
