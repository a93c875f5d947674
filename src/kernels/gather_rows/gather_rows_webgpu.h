// gather_rows on WebGPU: copies whole rows by index. An output larger than a binding is written in slices of rows; x must fit one.
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
  uint32_t first_row = 0;
  uint32_t padding[3] = {};
};
static_assert(sizeof(GatherRowsParams) == 48);

struct GatherRowsStep {
  GatherRowsParams params;
  gpu::Grid grid;
  gpu::Binding out;
};

struct GatherRowsPlan {
  const gpu::ShaderSource* shader = nullptr;
  gpu::Binding x, indices;
  std::vector<GatherRowsStep> steps;  // one dispatch each; empty: nothing to do
};

std::vector<std::string> gather_rows_variants(const gpu::Capabilities& capabilities);
Result<GatherRowsPlan> plan_gather_rows(const compute::GatherRowsArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced);
Status record_gather_rows(WebgpuContext& context, const compute::GatherRowsArgs& args);

}  // namespace chorus::kernels
