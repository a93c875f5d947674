// Float64 twin of attention on dense matrices (see compute/ops.h), with the sizes that bound the error of an f32 implementation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

struct AttentionReference {
  std::vector<double> out;  // [rows, query_heads * head_dim]
  // Per element of out, times sigmoid(gate), with p the softmax weights and a_j = scale * sum_d |q_d k_jd|:
  std::vector<double> value_size;  // sum_j p_j |v_j|
  std::vector<double> score_size;  // sum_j p_j |v_j| a_j + (sum_j p_j |v_j|) (sum_j p_j a_j): effect of a relative error of every score
};

struct AttentionReferenceInputs {
  compute::AttentionShape shape;
  float scale = 0;
  uint32_t prefix_rows = 0;
  std::vector<compute::SequenceSpan> spans;
  std::span<const float> q;         // [rows, query_heads * head_dim]
  std::span<const float> q_gate;    // [rows, query_heads * 2 * head_dim]
  std::span<const float> prefix_k;  // [prefix_rows, kv_heads * head_dim]
  std::span<const float> prefix_v;
  std::span<const float> own_k;  // [rows, kv_heads * head_dim]
  std::span<const float> own_v;
};

// One row and query head; `first_own` is the first row of its sequence.
inline void reference_attention_row(const AttentionReferenceInputs& in, size_t row, size_t first_own, size_t head,
                                    AttentionReference& result) {
  const size_t dim = in.shape.head_dim, q_cols = in.shape.query_heads * dim, kv_cols = in.shape.kv_heads * dim;
  const size_t kv_at = head / (in.shape.query_heads / in.shape.kv_heads) * dim;
  const size_t keys = in.prefix_rows + row - first_own + 1;
  auto row_of = [&](std::span<const float> prefix, std::span<const float> own, size_t key) {
    return key < in.prefix_rows ? prefix.data() + key * kv_cols + kv_at : own.data() + (first_own + key - in.prefix_rows) * kv_cols + kv_at;
  };
  const float* query = in.q.data() + row * q_cols + head * dim;
  std::vector<double> weights(keys), sizes(keys);
  double largest = 0;
  for (size_t key = 0; key < keys; ++key) {
    const float* k = row_of(in.prefix_k, in.own_k, key);
    double score = 0, size = 0;
    for (size_t i = 0; i < dim; ++i) {
      const double product = static_cast<double>(query[i]) * k[i];
      score += product;
      size += std::abs(product);
    }
    weights[key] = score * static_cast<double>(in.scale);
    sizes[key] = size * std::abs(static_cast<double>(in.scale));
    largest = key == 0 ? weights[key] : std::max(largest, weights[key]);
  }
  double sum = 0, mean_size = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (size_t key = 0; key < keys; ++key) mean_size += (weights[key] /= sum) * sizes[key];
  for (size_t i = 0; i < dim; ++i) {
    double out = 0, value_size = 0, score_size = 0;
    for (size_t key = 0; key < keys; ++key) {
      const double value = row_of(in.prefix_v, in.own_v, key)[i];
      out += weights[key] * value;
      value_size += weights[key] * std::abs(value);
      score_size += weights[key] * std::abs(value) * sizes[key];
    }
    const double gate = in.q_gate[row * 2 * q_cols + head * 2 * dim + dim + i];
    const double open = 1 / (1 + std::exp(-gate));
    const size_t at = row * q_cols + head * dim + i;
    result.out[at] = out * open;
    result.value_size[at] = value_size * open;
    result.score_size[at] = (score_size + value_size * mean_size) * open;
  }
}

inline AttentionReference reference_attention(const AttentionReferenceInputs& in) {
  AttentionReference result;
  result.out.resize(in.q.size());
  result.value_size.resize(in.q.size());
  result.score_size.resize(in.q.size());
  for (const compute::SequenceSpan& span : in.spans) {
    for (size_t row = span.start; row < static_cast<size_t>(span.start) + span.length; ++row) {
      for (size_t head = 0; head < in.shape.query_heads; ++head) reference_attention_row(in, row, span.start, head, result);
    }
  }
  return result;
}

}  // namespace chorus::kernels
