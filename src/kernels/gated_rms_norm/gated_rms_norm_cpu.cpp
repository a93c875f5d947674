#include "kernels/gated_rms_norm/gated_rms_norm_cpu.h"

#include <cmath>

namespace chorus::kernels {

Status gated_rms_norm_cpu(CpuContext& context, const compute::GatedRmsNormArgs& args) {
  const Rows x(args.x), gate(args.gate);
  const MutableRows out(args.out);
  const float* weight = floats(args.weight);
  const uint64_t dim = args.head_dim;
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      for (uint64_t base = 0; base < args.x.cols; base += dim) {
        const float* in = x.row(row) + base;
        const float* gates = gate.row(row) + base;
        float* target = out.row(row) + base;
        double squares = 0;
        for (uint64_t col = 0; col < dim; ++col) squares += static_cast<double>(in[col]) * in[col];
        const float factor = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(dim) + args.epsilon));
        for (uint64_t col = 0; col < dim; ++col) target[col] = in[col] * factor * weight[col] * (gates[col] / (1 + std::exp(-gates[col])));
      }
    }
  });
  return {};
}

}  // namespace chorus::kernels
