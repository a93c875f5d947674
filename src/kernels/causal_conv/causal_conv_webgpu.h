// WebGPU half of causal_conv. One listed variant, "window"; the vector width and the history build follow from the arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// Mirrors Params of causal_conv.wgsl.
struct CausalConvParams {
  uint32_t rows, channels, sequences, tiles;
  uint32_t x_offset, x_stride, out_offset, out_stride;
  uint32_t tile_rows;
  uint32_t unused[3];
};
static_assert(sizeof(CausalConvParams) == 48);

struct CausalConvPlan {
  std::string shader;  // build of causal_conv.wgsl; empty: nothing to do
  std::vector<gpu::Binding> bindings;
  CausalConvParams params{};
  gpu::Grid grid;
};

std::vector<std::string> causal_conv_variants(const gpu::Capabilities& capabilities);
Result<CausalConvPlan> plan_causal_conv(const compute::CausalConvArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced);
Status record_causal_conv(WebgpuContext& context, const compute::CausalConvArgs& args);

}  // namespace chorus::kernels
