// rms_norm on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status rms_norm_cpu(CpuContext& context, const compute::RmsNormArgs& args);

}  // namespace chorus::kernels
