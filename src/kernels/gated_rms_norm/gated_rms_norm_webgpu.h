// WebGPU half of gated_rms_norm. One listed variant, "rows"; the vector width and the in-place build follow from the arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/row_windows_webgpu.h"
#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// Mirrors Params of gated_rms_norm.wgsl.
struct GatedRmsNormParams {
  uint32_t items = 0, heads = 0, head_width = 0, head_dim = 0;
  uint32_t x_offset = 0, x_stride = 0, gate_offset = 0, gate_stride = 0;
  uint32_t out_offset = 0, out_stride = 0;
  float epsilon = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(GatedRmsNormParams) == 48);

struct GatedRmsNormPlan {
  std::string shader;  // build of gated_rms_norm.wgsl
  uint32_t width = 1;  // elements per load
  bool in_place = false;
  std::vector<RowSlice> slices;  // one dispatch each
};

std::vector<std::string> gated_rms_norm_variants(const gpu::Capabilities& capabilities);
Result<GatedRmsNormPlan> plan_gated_rms_norm(const compute::GatedRmsNormArgs& args, const gpu::Capabilities& capabilities,
                                             std::string_view forced);
Status record_gated_rms_norm(WebgpuContext& context, const compute::GatedRmsNormArgs& args);

}  // namespace chorus::kernels
