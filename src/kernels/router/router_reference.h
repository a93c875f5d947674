// Float64 twin of router, for logits whose choice is not within rounding of another: experts and weights [rows, top_k].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

struct RouterReference {
  std::vector<uint32_t> experts;
  std::vector<double> weights;
};

inline std::vector<double> reference_scores(std::span<const float> logits, compute::RouterScore score) {
  std::vector<double> scores;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) {
    scores.push_back(score == compute::RouterScore::softmax ? std::exp(logit - largest) : 1 / (1 + std::exp(-static_cast<double>(logit))));
    sum += scores.back();
  }
  if (score == compute::RouterScore::softmax) {
    for (double& value : scores) value /= sum;
  }
  return scores;
}

// Indices of `values` by falling value, of equals the lower first.
inline std::vector<uint32_t> reference_order(std::span<const double> values) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
  return order;
}

// Which experts stand in a kept group.
inline std::vector<bool> reference_kept(std::span<const double> choice, uint32_t groups, uint32_t groups_kept) {
  std::vector<bool> kept(choice.size(), groups == 1);
  if (groups == 1) return kept;
  const size_t size = choice.size() / groups;
  std::vector<double> ranks;
  for (uint32_t group = 0; group < groups; ++group) {
    std::vector<double> members(choice.begin() + static_cast<ptrdiff_t>(group * size),
                                choice.begin() + static_cast<ptrdiff_t>((group + 1) * size));
    std::sort(members.rbegin(), members.rend());
    ranks.push_back(members[0] + members[1]);
  }
  const std::vector<uint32_t> order = reference_order(ranks);
  for (uint32_t place = 0; place < groups_kept; ++place) {
    std::fill_n(kept.begin() + static_cast<ptrdiff_t>(order[place] * size), size, true);
  }
  return kept;
}

// logits: [rows, experts]; bias: [experts] or empty. Shape and options are those of `args`, its buffers are not used.
inline RouterReference reference_router(const compute::RouterArgs& args, std::span<const float> logits, std::span<const float> bias) {
  RouterReference result;
  const size_t count = args.logits.cols;
  for (size_t row = 0; row < args.logits.rows; ++row) {
    const std::vector<double> scores = reference_scores(logits.subspan(row * count, count), args.score);
    std::vector<double> choice = scores;
    for (size_t i = 0; i < bias.size(); ++i) choice[i] += bias[i];
    const std::vector<bool> kept = reference_kept(choice, args.groups, args.groups_kept);
    std::vector<double> weights;
    double sum = 0;
    for (const uint32_t expert : reference_order(choice)) {
      if (!kept[expert] || weights.size() == args.top_k) continue;
      result.experts.push_back(expert);
      weights.push_back(scores[expert]);
      sum += scores[expert];
    }
    for (const double weight : weights) result.weights.push_back((args.renormalise ? weight / (sum + 1e-20) : weight) * args.scale);
  }
  return result;
}

}  // namespace chorus::kernels
