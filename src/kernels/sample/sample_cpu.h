// sample on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status sample_cpu(CpuContext& context, const compute::SampleArgs& args);

}  // namespace chorus::kernels
