#include "kernels/head_linear/head_linear_cpu.h"

#include "kernels/linear/linear_cpu.h"

namespace chorus::kernels {

Status head_linear_cpu(CpuContext& context, const compute::HeadLinearArgs& args) {
  if (args.x.rows == 0) return {};
  const PanelProduct product{
      cpu_weight(args.weight), Rows(args.x), MutableRows(args.out), args.x.rows, args.heads, args.x_head_stride, nullptr, false};
  return multiply_panels(context, context.forced_variant("head_linear"), product);
}

}  // namespace chorus::kernels
