// embed on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status embed_cpu(CpuContext& context, const compute::EmbedArgs& args);

}  // namespace chorus::kernels
