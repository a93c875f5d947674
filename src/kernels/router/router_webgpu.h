// WebGPU half of router.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct RouterPlan {
  const gpu::ShaderSource* shader = nullptr;
  std::vector<RowSlice> slices;
};

std::vector<std::string> router_variants(const gpu::Capabilities& capabilities);
Result<RouterPlan> plan_router(const compute::RouterArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_router(WebgpuContext& context, const compute::RouterArgs& args);

}  // namespace chorus::kernels
