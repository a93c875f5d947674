// WebGPU half of segment_softmax.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct SegmentSoftmaxPlan {
  const gpu::ShaderSource* shader = nullptr;
  gpu::Grid grid;  // one workgroup a segment
};

std::vector<std::string> segment_softmax_variants(const gpu::Capabilities& capabilities);
Result<SegmentSoftmaxPlan> plan_segment_softmax(const compute::SegmentSoftmaxArgs& args, const gpu::Capabilities& capabilities,
                                                std::string_view forced);
Status record_segment_softmax(WebgpuContext& context, const compute::SegmentSoftmaxArgs& args);

}  // namespace chorus::kernels
