// layer_norm on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status layer_norm_cpu(CpuContext& context, const compute::LayerNormArgs& args);

}  // namespace chorus::kernels
