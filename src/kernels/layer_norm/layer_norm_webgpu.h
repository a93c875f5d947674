// WebGPU half of layer_norm.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct LayerNormPlan {
  const gpu::ShaderSource* shader = nullptr;
  bool in_place = false;
  std::vector<RowSlice> slices;  // one dispatch each, one workgroup a row
};

std::vector<std::string> layer_norm_variants(const gpu::Capabilities& capabilities);
Result<LayerNormPlan> plan_layer_norm(const compute::LayerNormArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_layer_norm(WebgpuContext& context, const compute::LayerNormArgs& args);

}  // namespace chorus::kernels
