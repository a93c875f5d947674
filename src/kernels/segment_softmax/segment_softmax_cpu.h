// segment_softmax on the processor; the operation is documented in compute/ops.h.
#pragma once

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status segment_softmax_cpu(CpuContext& context, const compute::SegmentSoftmaxArgs& args);

}  // namespace chorus::kernels
