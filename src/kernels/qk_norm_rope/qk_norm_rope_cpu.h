// qk_norm_rope on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status qk_norm_rope_cpu(CpuContext& context, const compute::QkNormRopeArgs& args);

}  // namespace chorus::kernels
