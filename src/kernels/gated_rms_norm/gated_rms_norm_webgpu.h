// WebGPU half of gated_rms_norm. One listed variant, "rows"; the vector width and the in-place build follow from the arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// Mirrors Params of gated_rms_norm.wgsl.
struct GatedRmsNormParams {
  uint32_t items, heads, head_width, head_dim;
  uint32_t x_offset, x_stride, gate_offset, gate_stride;
  uint32_t out_offset, out_stride;
  float epsilon;
  uint32_t unused;
};
static_assert(sizeof(GatedRmsNormParams) == 48);

struct GatedRmsNormPlan {
  std::string shader;  // build of gated_rms_norm.wgsl; empty: nothing to do
  std::vector<gpu::Binding> bindings;
  GatedRmsNormParams params{};
  gpu::Grid grid;
};

std::vector<std::string> gated_rms_norm_variants(const gpu::Capabilities& capabilities);
Result<GatedRmsNormPlan> plan_gated_rms_norm(const compute::GatedRmsNormArgs& args, const gpu::Capabilities& capabilities,
                                             std::string_view forced);
Status record_gated_rms_norm(WebgpuContext& context, const compute::GatedRmsNormArgs& args);

}  // namespace chorus::kernels
