#include "kernels/attention/attention_cpu.h"

#include <cmath>

namespace chorus::kernels {

Status attention_cpu(CpuContext& context, const compute::AttentionArgs& args) {
  if (args.q.rows == 0) return {};
  const uint64_t dim = args.shape.head_dim, heads = args.shape.query_heads, group = heads / args.shape.kv_heads;
  const uint64_t prefix_rows = args.prefix_k.rows;
  const uint64_t score_count = prefix_rows + args.q.rows;
  CHORUS_ASSIGN(float* scratch, context.scratch.acquire_floats("attention", score_count * context.pool.threads()));
  const Rows q(args.q), q_gate(args.q_gate), own_k(args.own_k), own_v(args.own_v);
  const Rows prefix_k(prefix_rows ? args.prefix_k : args.own_k), prefix_v(prefix_rows ? args.prefix_v : args.own_v);
  const MutableRows out(args.out);
  for (const compute::SequenceSpan& span : args.sequences->spans) {
    context.pool.run(span.length * heads, [&](uint64_t task, uint32_t worker) {
      const uint64_t row = span.start + task / heads, head = task % heads, kv_offset = head / group * dim;
      const uint64_t own = task / heads + 1;
      float* scores = scratch + worker * score_count;
      const float* query = q.row(row) + head * dim;
      const auto key = [&](uint64_t at) {
        return (at < prefix_rows ? prefix_k.row(at) : own_k.row(span.start + at - prefix_rows)) + kv_offset;
      };
      const auto value = [&](uint64_t at) {
        return (at < prefix_rows ? prefix_v.row(at) : own_v.row(span.start + at - prefix_rows)) + kv_offset;
      };
      float maximum = -INFINITY;
      for (uint64_t at = 0; at < prefix_rows + own; ++at) {
        float sum = 0;
        for (uint64_t i = 0; i < dim; ++i) sum += query[i] * key(at)[i];
        scores[at] = sum * args.scale;
        maximum = std::max(maximum, scores[at]);
      }
      float* target = out.row(row) + head * dim;
      std::fill_n(target, dim, 0.0f);
      double total = 0;
      for (uint64_t at = 0; at < prefix_rows + own; ++at) {
        const float weight = std::exp(scores[at] - maximum);
        total += weight;
        const float* v = value(at);
        for (uint64_t i = 0; i < dim; ++i) target[i] += weight * v[i];
      }
      const float* gate = q_gate.row(row) + 2 * head * dim + dim;
      const float inverse = static_cast<float>(1 / total);
      for (uint64_t i = 0; i < dim; ++i) target[i] = target[i] * inverse / (1 + std::exp(-gate[i]));
    });
  }
  return {};
}

}  // namespace chorus::kernels
