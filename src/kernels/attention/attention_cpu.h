// attention on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status attention_cpu(CpuContext& context, const compute::AttentionArgs& args);

}  // namespace chorus::kernels
