// Float64 twin of pointer_scores on dense matrices.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

// `sizes` (may be null) receives sum |k q| * |scale / temperature| per option, for tolerances.
inline std::vector<double> reference_pointer_scores(std::span<const float> queries, std::span<const float> keys, uint32_t width,
                                                    std::span<const uint32_t> question_of_option, float scale, float temperature,
                                                    std::vector<double>* sizes = nullptr) {
  std::vector<double> scores(question_of_option.size());
  if (sizes) sizes->assign(scores.size(), 0);
  for (size_t option = 0; option < scores.size(); ++option) {
    const float* key = keys.data() + option * width;
    const float* query = queries.data() + static_cast<size_t>(question_of_option[option]) * width;
    double sum = 0, size = 0;
    for (size_t i = 0; i < width; ++i) {
      sum += static_cast<double>(key[i]) * query[i];
      size += std::abs(static_cast<double>(key[i]) * query[i]);
    }
    const double factor = static_cast<double>(scale) / static_cast<double>(temperature);
    scores[option] = sum * factor;
    if (sizes) (*sizes)[option] = size * std::abs(factor);
  }
  return scores;
}

}  // namespace chorus::kernels
