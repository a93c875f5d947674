// attend on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status attend_cpu(CpuContext& context, const compute::AttendArgs& args);

}  // namespace chorus::kernels
