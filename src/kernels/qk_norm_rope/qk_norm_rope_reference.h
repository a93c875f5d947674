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
  bool gated = true;
  compute::QueryKeyNorm norm = compute::QueryKeyNorm::per_head;
  compute::NormWeight weight = compute::NormWeight::one_plus;
};

inline double reference_norm_factor(std::span<const float> x, float epsilon) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  return 1 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(epsilon));
}

// One head: RMSNorm by `factor`, then rotate-half over the first rotary_dim elements. `magnitude` (may be null) receives, per element,
// the sum of the absolute terms, for tolerances.
inline void reference_norm_rope_head(const float* x, uint32_t head_dim, uint32_t rotary_dim, double factor, const float* weight,
                                     const float* cosine, const float* sine, double* out, double* magnitude, const QkNormRopeForm& form) {
  std::vector<double> normed(head_dim);
  for (uint32_t i = 0; i < head_dim; ++i) {
    const double shift = form.weight == compute::NormWeight::one_plus ? 1 : 0;
    normed[i] = form.norm != compute::QueryKeyNorm::none ? x[i] * factor * (shift + static_cast<double>(weight[i])) : x[i];
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
    const auto heads = [&](std::span<const float> in, size_t count, size_t head_pitch, std::span<const float> weight, double* out,
                           std::vector<double>* magnitude, size_t out_row) {
      const bool whole = form.norm == compute::QueryKeyNorm::whole_row;
      const double of_row = reference_norm_factor(in.first(count * dim), epsilon);
      for (size_t head = 0; head < count; ++head) {
        const size_t at = out_row + head * dim;
        const double factor = whole ? of_row : reference_norm_factor(in.subspan(head * head_pitch, dim), epsilon);
        reference_norm_rope_head(in.data() + head * head_pitch, shape.head_dim, rotary_dim, factor,
                                 weight.data() + (whole ? head * dim : 0), row_cosine, row_sine, out + at,
                                 magnitude ? magnitude->data() + at : nullptr, form);
      }
    };
    if (!q_gate.empty())
      heads(q_gate.subspan(row * q_in, q_in), shape.query_heads, pitch, q_weight, result.q.data(), q_magnitude, row * q_cols);
    const std::span<const float> row_kv = kv.subspan(row * 2 * kv_cols, 2 * kv_cols);
    heads(row_kv, shape.kv_heads, dim, k_weight, result.k.data(), k_magnitude, row * kv_cols);
    for (size_t i = 0; i < kv_cols; ++i) result.v[row * kv_cols + i] = row_kv[kv_cols + i];
  }
  return result;
}

}  // namespace chorus::kernels
