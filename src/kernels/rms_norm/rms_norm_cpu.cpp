#include "kernels/rms_norm/rms_norm_cpu.h"

#include <cmath>

namespace chorus::kernels {

Status rms_norm_cpu(CpuContext& context, const compute::RmsNormArgs& args) {
  const Rows x(args.x);
  const MutableRows out(args.out);
  const float* weight = floats(args.weight);
  const float shift = args.form == compute::NormWeight::one_plus ? 1.0f : 0.0f;
  for_row_ranges(context.pool, args.x.rows, args.x.cols, [&](uint64_t first, uint64_t last, uint32_t) {
    for (uint64_t row = first; row < last; ++row) {
      const float* in = x.row(row);
      double squares = 0;
      for (uint64_t col = 0; col < args.x.cols; ++col) squares += static_cast<double>(in[col]) * in[col];
      const float factor = static_cast<float>(1 / std::sqrt(squares / args.x.cols + args.epsilon));
      float* target = out.row(row);
      for (uint64_t col = 0; col < args.x.cols; ++col) target[col] = in[col] * factor * (shift + weight[col]);
    }
  });
  return {};
}

}  // namespace chorus::kernels
