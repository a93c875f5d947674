// gated_rms_norm on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status gated_rms_norm_cpu(CpuContext& context, const compute::GatedRmsNormArgs& args);

}  // namespace chorus::kernels
