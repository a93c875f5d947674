// copy on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status copy_cpu(CpuContext& context, const compute::CopyArgs& args);

}  // namespace chorus::kernels
