// gather_rows on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status gather_rows_cpu(CpuContext& context, const compute::GatherRowsArgs& args);

}  // namespace chorus::kernels
