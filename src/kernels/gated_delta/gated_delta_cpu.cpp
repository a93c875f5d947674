#include "kernels/gated_delta/gated_delta_cpu.h"

#include <cmath>
#include <cstring>

namespace chorus::kernels {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

float inverse_norm(const float* x, uint64_t count) {
  double squares = 0;
  for (uint64_t i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(1 / std::sqrt(squares + 1e-6));
}

}  // namespace

Status gated_delta_cpu(CpuContext& context, const compute::GatedDeltaArgs& args) {
  const auto [key_heads, value_heads, key_dim, value_dim] = args.shape;
  const uint64_t state_size = uint64_t{key_dim} * value_dim;
  const uint64_t work_size = state_size + 2 * uint64_t{key_dim} + value_dim;
  CHORUS_ASSIGN(float* scratch, context.scratch.acquire_floats("gated_delta", work_size * context.pool.threads()));
  const Rows qkv(args.qkv), b(args.b), a(args.a);
  const MutableRows out(args.out);
  const auto& spans = args.sequences->spans;
  const uint64_t heads = value_heads, dk = key_dim, dv = value_dim, group = value_heads / key_heads;
  const uint64_t key_columns = uint64_t{key_heads} * key_dim;
  context.pool.run(spans.size() * heads, [&](uint64_t task, uint32_t worker) {
    const compute::SequenceSpan& span = spans[task / heads];
    const uint64_t head = task % heads;
    float* state = scratch + worker * work_size;
    float* q = state + state_size;
    float* k = q + dk;
    float* u = k + dk;
    std::memcpy(state, floats(args.state_in) + head * state_size, state_size * sizeof(float));
    const double rate = -std::exp(static_cast<double>(floats(args.a_log)[head]));
    const double dt_bias = floats(args.dt_bias)[head];
    for (uint64_t row = span.start; row < uint64_t{span.start} + span.length; ++row) {
      const float* q_in = qkv.row(row) + head / group * dk;
      const float* k_in = q_in + key_columns;
      const float* v = qkv.row(row) + 2 * key_columns + head * dv;
      const float q_scale = inverse_norm(q_in, dk) / std::sqrt(static_cast<float>(dk));
      const float k_scale = inverse_norm(k_in, dk);
      for (uint64_t i = 0; i < dk; ++i) q[i] = q_in[i] * q_scale;
      for (uint64_t i = 0; i < dk; ++i) k[i] = k_in[i] * k_scale;
      const float beta = 1 / (1 + std::exp(-b.row(row)[head]));
      const float decay = static_cast<float>(std::exp(rate * softplus(a.row(row)[head] + dt_bias)));
      for (uint64_t j = 0; j < dv; ++j) u[j] = 0;
      for (uint64_t i = 0; i < dk; ++i) {
        float* line = state + i * dv;
        for (uint64_t j = 0; j < dv; ++j) line[j] *= decay;
        for (uint64_t j = 0; j < dv; ++j) u[j] += line[j] * k[i];
      }
      for (uint64_t j = 0; j < dv; ++j) u[j] = (v[j] - u[j]) * beta;
      float* target = out.row(row) + head * dv;
      for (uint64_t j = 0; j < dv; ++j) target[j] = 0;
      for (uint64_t i = 0; i < dk; ++i) {
        float* line = state + i * dv;
        for (uint64_t j = 0; j < dv; ++j) line[j] += k[i] * u[j];
        for (uint64_t j = 0; j < dv; ++j) target[j] += line[j] * q[i];
      }
    }
    if (args.state_out) std::memcpy(floats(args.state_out) + head * state_size, state, state_size * sizeof(float));
  });
  return {};
}

}  // namespace chorus::kernels
