// WebGPU half of combine_routes.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct CombineRoutesPlan {
  const gpu::ShaderSource* shader = nullptr;
  uint32_t width = 1;            // elements a thread makes
  compute::View routed;          // the routes of a row as one long row
  std::vector<RowSlice> slices;  // of out
};

std::vector<std::string> combine_routes_variants(const gpu::Capabilities& capabilities);
Result<CombineRoutesPlan> plan_combine_routes(const compute::CombineRoutesArgs& args, const gpu::Capabilities& capabilities,
                                              std::string_view forced);
Status record_combine_routes(WebgpuContext& context, const compute::CombineRoutesArgs& args);

}  // namespace chorus::kernels
