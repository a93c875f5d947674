// swiglu on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status swiglu_cpu(CpuContext& context, const compute::SwigluArgs& args);

}  // namespace chorus::kernels
