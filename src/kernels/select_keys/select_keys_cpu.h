// select_keys on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status select_keys_cpu(CpuContext& context, const compute::SelectKeysArgs& args);

}  // namespace chorus::kernels
