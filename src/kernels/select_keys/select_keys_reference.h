// Float64 twin of select_keys on dense matrices (see compute/ops.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/select_keys/tie_order.h"

namespace chorus::kernels {

struct SelectKeysReferenceInputs {
  uint32_t heads = 0, head_dim = 0, top_k = 0;
  float scale = 1;
  size_t rows = 0, keys = 0;
  std::span<const float> q;        // [rows, heads * head_dim]
  std::span<const float> k;        // [keys, head_dim]
  std::span<const float> weights;  // [rows, heads]
  size_t horizon = 0;
};

struct SelectKeysReference {
  std::vector<uint32_t> selected;   // [rows, ceil(keys / 32)]
  std::vector<double> scores;       // [rows, keys]; 0 for keys that the row does not see
  std::vector<double> score_sizes;  // [rows, keys]: the sum of the absolute values of all products, for error bounds
};

inline SelectKeysReference reference_select_keys(const SelectKeysReferenceInputs& in) {
  SelectKeysReference result;
  const size_t words = (in.keys + 31) / 32;
  result.selected.resize(in.rows * words);
  result.scores.resize(in.rows * in.keys);
  result.score_sizes.resize(in.rows * in.keys);
  for (size_t row = 0; row < in.rows; ++row) {
    const size_t visible = in.keys - in.rows + row + 1;
    double* scores = result.scores.data() + row * in.keys;
    for (size_t key = 0; key < visible; ++key) {
      for (size_t head = 0; head < in.heads; ++head) {
        double product = 0, size = 0;
        for (size_t i = 0; i < in.head_dim; ++i) {
          const double term = static_cast<double>(in.q[(row * in.heads + head) * in.head_dim + i]) * in.k[key * in.head_dim + i];
          product += term;
          size += std::abs(term);
        }
        const double weight = static_cast<double>(in.weights[row * in.heads + head]) * in.scale;
        scores[key] += weight * std::max(product, 0.0);
        result.score_sizes[row * in.keys + key] += std::abs(weight) * size;
      }
    }
    // The place of each score among the different ones.
    std::vector<double> different(scores, scores + visible);
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    std::vector<uint32_t> places(visible), list(std::max(in.horizon, visible));
    for (size_t key = 0; key < visible; ++key) {
      places[key] = static_cast<uint32_t>(std::lower_bound(different.begin(), different.end(), scores[key]) - different.begin());
    }
    const size_t top = std::min<size_t>(in.top_k, visible);
    TieOrder(places, list, top);
    for (size_t i = 0; i < top; ++i) result.selected[row * words + list[i] / 32] |= 1u << (list[i] % 32);
  }
  return result;
}

}  // namespace chorus::kernels
