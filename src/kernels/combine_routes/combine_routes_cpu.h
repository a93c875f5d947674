// combine_routes on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status combine_routes_cpu(CpuContext& context, const compute::CombineRoutesArgs& args);

}  // namespace chorus::kernels
