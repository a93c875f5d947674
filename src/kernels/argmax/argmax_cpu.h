// argmax on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status argmax_cpu(CpuContext& context, const compute::ArgmaxArgs& args);

}  // namespace chorus::kernels
