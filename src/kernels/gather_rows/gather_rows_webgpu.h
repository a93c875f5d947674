// gather_rows on WebGPU: copies whole rows by index.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// Layout of Params in gather_rows.wgsl.
struct GatherRowsParams {
  uint32_t out_rows = 0;
  uint32_t cols = 0;
  uint32_t x_rows = 0;
  uint32_t x_offset = 0;
  uint32_t x_stride = 0;
  uint32_t out_offset = 0;
  uint32_t out_stride = 0;
  uint32_t chunks_per_row = 0;
};
static_assert(sizeof(GatherRowsParams) == 32);

struct GatherRowsPlan {
  const gpu::ShaderSource* shader = nullptr;
  gpu::Grid grid;  // x == 0: nothing to do
  GatherRowsParams params;
  gpu::Binding x, indices, out;
};

std::vector<std::string> gather_rows_variants(const gpu::Capabilities& capabilities);
Result<GatherRowsPlan> plan_gather_rows(const compute::GatherRowsArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced);
Status record_gather_rows(WebgpuContext& context, const compute::GatherRowsArgs& args);

}  // namespace chorus::kernels
