// WebGPU half of swiglu.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct SwigluPlan {
  const gpu::ShaderSource* shader = nullptr;
  uint32_t width = 1;  // elements a thread makes
  std::vector<RowSlice> slices;
};

std::vector<std::string> swiglu_variants(const gpu::Capabilities& capabilities);
Result<SwigluPlan> plan_swiglu(const compute::SwigluArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_swiglu(WebgpuContext& context, const compute::SwigluArgs& args);

}  // namespace chorus::kernels
