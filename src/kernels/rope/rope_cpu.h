// rope on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status rope_cpu(CpuContext& context, const compute::RopeArgs& args);

}  // namespace chorus::kernels
