// pointer_scores on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status pointer_scores_cpu(CpuContext& context, const compute::PointerScoresArgs& args);

}  // namespace chorus::kernels
