// head_linear on WebGPU: a kernel for few rows (head_linear_row.wgsl) and tiles for many (head_linear_tile.wgsl). Both sum in the same
// order.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

// Layout of Params in params.wgsl.
struct HeadLinearParams {
  uint32_t rows = 0;
  uint32_t head_cols = 0;
  uint32_t depth = 0;
  uint32_t weight_quads = 0;
  uint32_t x_offset = 0;
  uint32_t x_stride = 0;
  uint32_t x_head_stride = 0;
  uint32_t result_offset = 0;
  uint32_t result_stride = 0;
  uint32_t shard_first = 0;
  uint32_t shard_rows = 0;
  uint32_t first_head = 0;
  uint32_t heads = 0;
  uint32_t tiles_m = 0;
  uint32_t tiles_n = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(HeadLinearParams) == 64);

// One slice of rows and one shard of the weight.
struct HeadLinearStep {
  const gpu::ShaderSource* shader = nullptr;
  gpu::Binding x, weight, out;
  HeadLinearParams params;
  gpu::Grid grid;
};

struct HeadLinearPlan {
  std::string variant;
  std::vector<HeadLinearStep> steps;
};

std::vector<std::string> head_linear_variants(const gpu::Capabilities& capabilities);
Result<HeadLinearPlan> plan_head_linear(const compute::HeadLinearArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced);
Status record_head_linear(WebgpuContext& context, const compute::HeadLinearArgs& args);

}  // namespace chorus::kernels
