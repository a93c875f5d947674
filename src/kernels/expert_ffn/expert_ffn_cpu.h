// expert_ffn on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_expert_bank.h"

namespace chorus::kernels {

Status expert_ffn_cpu(CpuContext& context, const compute::ExpertFfnArgs& args);

}  // namespace chorus::kernels
