// head_linear on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status head_linear_cpu(CpuContext& context, const compute::HeadLinearArgs& args);

}  // namespace chorus::kernels
