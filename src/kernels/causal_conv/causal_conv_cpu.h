// causal_conv on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status causal_conv_cpu(CpuContext& context, const compute::CausalConvArgs& args);

}  // namespace chorus::kernels
