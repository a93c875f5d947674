// Float64 twin of attend on dense matrices (see compute/ops.h), with the sizes that bound the error of an f32 implementation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

struct AttendReferenceInputs {
  uint32_t query_heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  float scale = 0;
  uint32_t window = 0;
  size_t rows = 0, keys = 0;
  std::span<const float> q;            // [rows, query_heads * key_dim]
  std::span<const float> k;            // [keys, kv_heads * key_dim]
  std::span<const float> v;            // [keys, kv_heads * value_dim]
  std::span<const float> sinks;        // [query_heads], or empty
  std::span<const uint32_t> selected;  // [rows, ceil(keys / 32)], or empty
};

struct AttendReference {
  std::vector<double> out;  // [rows, query_heads * value_dim]
  // Per element of out, with p the softmax weights and a_j = scale * sum_d |q_d k_jd|:
  std::vector<double> value_size;  // sum_j p_j |v_j|
  std::vector<double> score_size;  // sum_j p_j |v_j| a_j + (sum_j p_j |v_j|) (sum_j p_j a_j): effect of a relative error of every score
};

inline bool reference_sees(const AttendReferenceInputs& in, size_t row, size_t key) {
  const size_t position = in.keys - in.rows + row;
  if (key > position || (in.window > 0 && key + in.window <= position)) return false;
  return in.selected.empty() || (in.selected[row * ((in.keys + 31) / 32) + key / 32] >> (key % 32) & 1) != 0;
}

inline void reference_attend_row(const AttendReferenceInputs& in, size_t row, size_t head, AttendReference& result) {
  const size_t kv_head = head / (in.query_heads / in.kv_heads);
  const float* query = in.q.data() + (row * in.query_heads + head) * in.key_dim;
  std::vector<size_t> keys;
  std::vector<double> weights, sizes;
  for (size_t key = 0; key < in.keys; ++key) {
    if (!reference_sees(in, row, key)) continue;
    const float* k = in.k.data() + (key * in.kv_heads + kv_head) * in.key_dim;
    double score = 0, size = 0;
    for (size_t i = 0; i < in.key_dim; ++i) {
      score += static_cast<double>(query[i]) * k[i];
      size += std::abs(static_cast<double>(query[i]) * k[i]);
    }
    keys.push_back(key);
    weights.push_back(score * static_cast<double>(in.scale));
    sizes.push_back(size * static_cast<double>(in.scale));
  }
  double largest = *std::max_element(weights.begin(), weights.end());
  if (!in.sinks.empty()) largest = std::max(largest, static_cast<double>(in.sinks[head]));
  double sum = 0, mean_size = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  if (!in.sinks.empty()) {
    const double sink = std::exp(static_cast<double>(in.sinks[head]) - largest);
    sum += sink;
    mean_size = sink / sum * std::abs(static_cast<double>(in.sinks[head]));
  }
  for (size_t at = 0; at < keys.size(); ++at) mean_size += (weights[at] /= sum) * sizes[at];
  for (size_t i = 0; i < in.value_dim; ++i) {
    double out = 0, value_size = 0, score_size = 0;
    for (size_t at = 0; at < keys.size(); ++at) {
      const double value = in.v[(keys[at] * in.kv_heads + kv_head) * in.value_dim + i];
      out += weights[at] * value;
      value_size += weights[at] * std::abs(value);
      score_size += weights[at] * std::abs(value) * sizes[at];
    }
    const size_t target = (row * in.query_heads + head) * in.value_dim + i;
    result.out[target] = out;
    result.value_size[target] = value_size;
    result.score_size[target] = score_size + value_size * mean_size;
  }
}

inline AttendReference reference_attend(const AttendReferenceInputs& in) {
  AttendReference result;
  const size_t count = in.rows * in.query_heads * in.value_dim;
  result.out.resize(count);
  result.value_size.resize(count);
  result.score_size.resize(count);
  for (size_t row = 0; row < in.rows; ++row) {
    for (size_t head = 0; head < in.query_heads; ++head) reference_attend_row(in, row, head, result);
  }
  return result;
}

}  // namespace chorus::kernels
