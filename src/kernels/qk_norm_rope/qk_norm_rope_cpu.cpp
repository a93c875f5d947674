#include "kernels/qk_norm_rope/qk_norm_rope_cpu.h"

#include <cmath>

namespace chorus::kernels {
namespace {

struct Rotation {
  const float* cosine;
  const float* sine;
  uint64_t half;  // rotary_dim / 2
};

// One head: out = rope(rms_norm(in)).
void norm_and_rotate(const float* in, const float* weight, uint64_t dim, float epsilon, const Rotation& rotation, float* out) {
  double squares = 0;
  for (uint64_t i = 0; i < dim; ++i) squares += static_cast<double>(in[i]) * in[i];
  const float factor = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(dim) + epsilon));
  for (uint64_t i = 0; i < dim; ++i) out[i] = in[i] * factor * (1 + weight[i]);
  for (uint64_t i = 0; i < rotation.half; ++i) {
    const float low = out[i], high = out[i + rotation.half];
    out[i] = low * rotation.cosine[i] - high * rotation.sine[i];
    out[i + rotation.half] = high * rotation.cosine[i] + low * rotation.sine[i];
  }
}

}  // namespace

Status qk_norm_rope_cpu(CpuContext& context, const compute::QkNormRopeArgs& args) {
  if (args.kv.rows == 0) return {};
  const uint64_t dim = args.shape.head_dim, kv_heads = args.shape.kv_heads;
  const Rows kv(args.kv), cosine(args.cosine), sine(args.sine);
  const MutableRows k_out(args.k_out), v_out(args.v_out);
  for_row_ranges(context.pool, args.kv.rows, args.kv.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const Rotation rotation{cosine.row(row), sine.row(row), args.rotary_dim / 2};
      for (uint64_t head = 0; head < kv_heads; ++head) {
        norm_and_rotate(kv.row(row) + head * dim, floats(args.k_weight), dim, args.epsilon, rotation, k_out.row(row) + head * dim);
      }
      std::copy_n(kv.row(row) + kv_heads * dim, kv_heads * dim, v_out.row(row));
    }
  });
  if (!args.q_out.buffer) return {};
  const Rows q_gate(args.q_gate);
  const MutableRows q_out(args.q_out);
  for_row_ranges(context.pool, args.kv.rows, args.q_out.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const Rotation rotation{cosine.row(row), sine.row(row), args.rotary_dim / 2};
      for (uint64_t head = 0; head < args.shape.query_heads; ++head) {
        norm_and_rotate(q_gate.row(row) + 2 * head * dim, floats(args.q_weight), dim, args.epsilon, rotation, q_out.row(row) + head * dim);
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
