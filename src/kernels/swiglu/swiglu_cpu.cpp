#include "kernels/swiglu/swiglu_cpu.h"

#include <cmath>

namespace chorus::kernels {

Status swiglu_cpu(CpuContext& context, const compute::SwigluArgs& args) {
  const Rows gate_up(args.gate_up);
  const MutableRows out(args.out);
  for_row_ranges(context.pool, args.out.rows, args.out.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const float* gate = gate_up.row(row);
      const float* up = gate + args.out.cols;
      float* target = out.row(row);
      for (uint64_t col = 0; col < args.out.cols; ++col) target[col] = gate[col] / (1 + std::exp(-gate[col])) * up[col];
    }
  });
  return {};
}

}  // namespace chorus::kernels
