// Float64 twin of qk_norm_rope on dense matrices (see compute/ops.h for the layouts).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

struct QkNormRopeReference {
  std::vector<double> q;  // [rows, query_heads * head_dim]; empty without queries
  std::vector<double> k;  // [rows, kv_heads * head_dim]
  std::vector<double> v;  // [rows, kv_heads * head_dim]
};

// How heads are laid out and normed; as in compute::QkNormRopeArgs.
struct QkNormRopeForm {
  bool gated = true, normed = true;
  compute::NormWeight weight = compute::NormWeight::one_plus;
};

// One head: RMSNorm, then rotate-half over the first rotary_dim elements. `magnitude` (may be null) receives, per element,
// the sum of the absolute terms, for tolerances.
inline void reference_norm_rope_head(const float* x, uint32_t head_dim, uint32_t rotary_dim, float epsilon, const float* weight,
                                     const float* cosine, const float* sine, double* out, double* magnitude, const QkNormRopeForm& form) {
  double squares = 0;
  for (uint32_t i = 0; i < head_dim; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double factor = 1 / std::sqrt(squares / head_dim + static_cast<double>(epsilon));
  std::vector<double> normed(head_dim);
  for (uint32_t i = 0; i < head_dim; ++i) {
    const double shift = form.weight == compute::NormWeight::one_plus ? 1 : 0;
    normed[i] = form.normed ? x[i] * factor * (shift + static_cast<double>(weight[i])) : x[i];
  }
  const uint32_t half = rotary_dim / 2;
  for (uint32_t i = 0; i < head_dim; ++i) {
    double value = normed[i], size = std::abs(normed[i]);
    if (i < half) {
      value = normed[i] * cosine[i] - normed[i + half] * sine[i];
      size = std::abs(normed[i] * cosine[i]) + std::abs(normed[i + half] * sine[i]);
    } else if (i < rotary_dim) {
      value = normed[i] * cosine[i - half] + normed[i - half] * sine[i - half];
      size = std::abs(normed[i] * cosine[i - half]) + std::abs(normed[i - half] * sine[i - half]);
    }
    out[i] = value;
    if (magnitude) magnitude[i] = size;
  }
}

// q_gate empty: no queries. q_magnitude and k_magnitude (may be null) receive the tolerance sizes of the results.
inline QkNormRopeReference reference_qk_norm_rope(const compute::AttentionShape& shape, uint32_t rotary_dim, float epsilon, uint32_t rows,
                                                  std::span<const float> q_gate, std::span<const float> kv, std::span<const float> q_weight,
                                                  std::span<const float> k_weight, std::span<const float> cosine,
                                                  std::span<const float> sine, std::vector<double>* q_magnitude = nullptr,
                                                  std::vector<double>* k_magnitude = nullptr, const QkNormRopeForm& form = {}) {
  const size_t dim = shape.head_dim, half = rotary_dim / 2;
  const size_t pitch = form.gated ? 2 * dim : dim, q_in = shape.query_heads * pitch;
  const size_t q_cols = shape.query_heads * dim, kv_cols = shape.kv_heads * dim;
  QkNormRopeReference result;
  if (!q_gate.empty()) result.q.resize(rows * q_cols);
  result.k.resize(rows * kv_cols);
  result.v.resize(rows * kv_cols);
  if (q_magnitude) q_magnitude->assign(result.q.size(), 0);
  if (k_magnitude) k_magnitude->assign(result.k.size(), 0);
  for (size_t row = 0; row < rows; ++row) {
    const float* row_cosine = cosine.data() + row * half;
    const float* row_sine = sine.data() + row * half;
    for (size_t head = 0; !q_gate.empty() && head < shape.query_heads; ++head) {
      const size_t at = row * q_cols + head * dim;
      reference_norm_rope_head(q_gate.data() + row * q_in + head * pitch, shape.head_dim, rotary_dim, epsilon, q_weight.data(), row_cosine,
                               row_sine, result.q.data() + at, q_magnitude ? q_magnitude->data() + at : nullptr, form);
    }
    for (size_t head = 0; head < shape.kv_heads; ++head) {
      const size_t at = row * kv_cols + head * dim;
      reference_norm_rope_head(kv.data() + row * 2 * kv_cols + head * dim, shape.head_dim, rotary_dim, epsilon, k_weight.data(), row_cosine,
                               row_sine, result.k.data() + at, k_magnitude ? k_magnitude->data() + at : nullptr, form);
      for (size_t i = 0; i < dim; ++i) result.v[at + i] = kv[row * 2 * kv_cols + kv_cols + head * dim + i];
    }
  }
  return result;
}

}  // namespace chorus::kernels
