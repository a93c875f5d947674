// WebGPU half of rms_norm.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct RmsNormPlan {
  const gpu::ShaderSource* shader = nullptr;
  bool in_place = false;
  std::vector<RowSlice> slices;  // one dispatch each, one workgroup a row
};

std::vector<std::string> rms_norm_variants(const gpu::Capabilities& capabilities);
Result<RmsNormPlan> plan_rms_norm(const compute::RmsNormArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_rms_norm(WebgpuContext& context, const compute::RmsNormArgs& args);

}  // namespace chorus::kernels
