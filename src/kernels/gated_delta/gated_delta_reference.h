// Float64 twin of the gated delta rule (compute/ops.h, GatedDeltaArgs): token by token, on dense row-major data.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/ops.h"

namespace chorus::kernels {

// ln(1 + e^x) without overflow, exact to rounding at both ends.
inline double reference_softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// ln of the decay; -inf stands for a decay of exactly zero. A softplus of zero gives zero whatever a_log is.
inline double reference_log_decay(double a_log, double a_plus_bias) {
  const double softplus = reference_softplus(a_plus_bias);
  return softplus == 0 ? 0.0 : -std::exp(a_log) * softplus;
}

struct GatedDeltaInput {
  compute::GatedDeltaShape shape;
  std::span<const float> qkv;       // [rows, 2 * key_heads * key_dim + value_heads * value_dim]: q | k | v
  std::span<const float> b;         // [rows, value_heads]
  std::span<const float> a;         // [rows, value_heads]
  std::span<const float> a_log;     // [value_heads]
  std::span<const float> dt_bias;   // [value_heads]
  std::span<const float> state_in;  // [value_heads, key_dim, value_dim]
  std::span<const compute::SequenceSpan> spans;
};

struct GatedDeltaReference {
  std::vector<double> out;    // [rows, value_heads * value_dim]
  std::vector<double> state;  // after the last sequence (state_in when there is none)
  // Per value head: the largest norm of a state column and of a value row seen. They bound |S^T k| and v, hence set the scale of errors.
  std::vector<double> scale;
};

// One value head of one sequence. `state` [key_dim, value_dim] is read and updated.
inline void gated_delta_reference_head(const GatedDeltaInput& in, const compute::SequenceSpan& span, uint32_t head, std::span<double> state,
                                       GatedDeltaReference& result) {
  const compute::GatedDeltaShape& shape = in.shape;
  const size_t key_dim = shape.key_dim, value_dim = shape.value_dim;
  const size_t key_cols = static_cast<size_t>(shape.key_heads) * key_dim;
  const size_t cols = 2 * key_cols + static_cast<size_t>(shape.value_heads) * value_dim;
  const size_t key_head = head / (shape.value_heads / shape.key_heads);
  std::vector<double> q(key_dim), k(key_dim);
  for (size_t row = span.start; row < static_cast<size_t>(span.start) + span.length; ++row) {
    const float* raw_q = &in.qkv[row * cols + key_head * key_dim];
    const float* raw_k = raw_q + key_cols;
    const float* v = &in.qkv[row * cols + 2 * key_cols + head * value_dim];
    double q_squares = 0, k_squares = 0;
    for (size_t i = 0; i < key_dim; ++i) {
      q_squares += static_cast<double>(raw_q[i]) * raw_q[i];
      k_squares += static_cast<double>(raw_k[i]) * raw_k[i];
    }
    for (size_t i = 0; i < key_dim; ++i) {
      q[i] = raw_q[i] / std::sqrt(q_squares + 1e-6) / std::sqrt(static_cast<double>(key_dim));
      k[i] = raw_k[i] / std::sqrt(k_squares + 1e-6);
    }
    const size_t gate = row * shape.value_heads + head;
    const double beta = 1.0 / (1.0 + std::exp(-static_cast<double>(in.b[gate])));
    const double decay = std::exp(reference_log_decay(in.a_log[head], static_cast<double>(in.a[gate]) + in.dt_bias[head]));
    double largest_column = 0, value_squares = 0;
    for (size_t j = 0; j < value_dim; ++j) {
      double read = 0;
      for (size_t i = 0; i < key_dim; ++i) {
        state[i * value_dim + j] *= decay;
        read += state[i * value_dim + j] * k[i];
      }
      const double update = (v[j] - read) * beta;
      double out = 0, column_squares = 0;
      for (size_t i = 0; i < key_dim; ++i) {
        double& element = state[i * value_dim + j];
        element += k[i] * update;
        out += element * q[i];
        column_squares += element * element;
      }
      result.out[row * shape.value_heads * value_dim + head * value_dim + j] = out;
      largest_column = std::fmax(largest_column, column_squares);
      value_squares = std::fmax(value_squares, static_cast<double>(v[j]) * v[j]);
    }
    result.scale[head] = std::fmax(result.scale[head], std::sqrt(std::fmax(largest_column, value_squares)));
  }
}

inline GatedDeltaReference gated_delta_reference(const GatedDeltaInput& in) {
  const compute::GatedDeltaShape& shape = in.shape;
  const size_t head_state = static_cast<size_t>(shape.key_dim) * shape.value_dim;
  GatedDeltaReference result;
  size_t rows = 0;
  for (const compute::SequenceSpan& span : in.spans) rows += span.length;
  result.out.resize(rows * shape.value_heads * shape.value_dim);
  result.scale.assign(shape.value_heads, 0.0);
  result.state.assign(in.state_in.begin(), in.state_in.end());
  for (uint32_t head = 0; head < shape.value_heads; ++head) {
    for (size_t i = 0; i < head_state; ++i) {
      result.scale[head] = std::fmax(result.scale[head], std::fabs(static_cast<double>(in.state_in[head * head_state + i])));
    }
  }
  for (const compute::SequenceSpan& span : in.spans) {
    result.state.assign(in.state_in.begin(), in.state_in.end());
    for (uint32_t head = 0; head < shape.value_heads; ++head) {
      gated_delta_reference_head(in, span, head, std::span(result.state).subspan(head * head_state, head_state), result);
    }
  }
  return result;
}

}  // namespace chorus::kernels
