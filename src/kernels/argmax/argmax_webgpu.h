// WebGPU half of argmax.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct ArgmaxPlan {
  const gpu::ShaderSource* first = nullptr;  // whole rows, or pieces of them
  const gpu::ShaderSource* merge = nullptr;  // null: the first did it
  uint32_t piece = 0;                        // values a workgroup takes
  uint32_t pieces = 0;                       // of a row
  std::vector<RowSlice> slices;
};

std::vector<std::string> argmax_variants(const gpu::Capabilities& capabilities);
Result<ArgmaxPlan> plan_argmax(const compute::ArgmaxArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_argmax(WebgpuContext& context, const compute::ArgmaxArgs& args);

}  // namespace chorus::kernels
