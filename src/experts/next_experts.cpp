#include "experts/next_experts.h"

#include <algorithm>

namespace chorus::experts {

NextExperts::NextExperts(std::span<const uint32_t> experts_per_layer)
    : experts_(experts_per_layer.begin(), experts_per_layer.end()), next_(experts_.size()), seen_(experts_.size()) {
  const auto layers = static_cast<uint32_t>(experts_.size());
  for (uint32_t layer = 0; layer < layers; ++layer) {
    uint32_t next = (layer + 1) % layers;
    while (next != layer && experts_[next] == 0) next = (next + 1) % layers;
    next_[layer] = next;
  }
}

void NextExperts::note(uint32_t layer, std::span<const uint32_t> here, std::span<const uint32_t> next) {
  const uint32_t width = experts_[next_[layer]];
  auto& seen = seen_[layer];
  if (seen.empty()) seen.resize(size_t{experts_[layer]} * width);
  bool full = false;
  for (const uint32_t a : here) {
    if (a >= experts_[layer]) continue;
    for (const uint32_t b : next) {
      if (b < width) full = ++seen[size_t{a} * width + b] == UINT8_MAX || full;
    }
  }
  if (full) {
    for (auto& count : seen) count /= 2;
  }
}

std::vector<ExpertKey> NextExperts::likely(uint32_t layer, std::span<const uint32_t> here, size_t count) const {
  const uint32_t width = experts_[next_[layer]];
  if (seen_[layer].empty()) return {};
  std::vector<uint32_t> sum(width, 0);
  for (const uint32_t a : here) {
    if (a >= experts_[layer]) continue;
    for (uint32_t b = 0; b < width; ++b) sum[b] += seen_[layer][size_t{a} * width + b];
  }
  std::vector<ExpertKey> keys;
  for (uint32_t b = 0; b < width; ++b) {
    if (sum[b] > 0) keys.push_back({next_[layer], b});
  }
  std::stable_sort(keys.begin(), keys.end(), [&](ExpertKey a, ExpertKey b) { return sum[a.expert] > sum[b.expert]; });
  if (keys.size() > count) keys.resize(count);
  return keys;
}

bool GuessJudge::worth_making(uint64_t begun, uint64_t used) {
  if (begun >= begun_ + kWindow) {
    pay_ = 2 * (used - used_) >= begun - begun_;
    begun_ = begun;
    used_ = used;
  }
  return ++calls_ % kTryEvery == 0 || pay_;
}

}  // namespace chorus::experts
