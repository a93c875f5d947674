// gated_delta on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status gated_delta_cpu(CpuContext& context, const compute::GatedDeltaArgs& args);

}  // namespace chorus::kernels
