// gated_delta on the processor; the operation is documented in compute/ops.h.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

// The SIMD targets (chunked form), and "recurrent" (token by token, plain).
std::vector<std::string> gated_delta_cpu_variants();

Status gated_delta_cpu(CpuContext& context, const compute::GatedDeltaArgs& args);

}  // namespace chorus::kernels
