// router on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status router_cpu(CpuContext& context, const compute::RouterArgs& args);

}  // namespace chorus::kernels
