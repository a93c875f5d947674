// linear on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status linear_cpu(CpuContext& context, const compute::LinearArgs& args);

}  // namespace chorus::kernels
