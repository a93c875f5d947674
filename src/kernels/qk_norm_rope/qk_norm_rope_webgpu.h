// WebGPU half of qk_norm_rope: one dispatch where queries, keys and values lie in one buffer, else one for the queries and one for the
// rest.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct QkNormRopePlan {
  const gpu::ShaderSource* all = nullptr;      // null: the two below
  const gpu::ShaderSource* queries = nullptr;  // null: none are asked for, or `all` writes them
  const gpu::ShaderSource* keys = nullptr;
  bool one_cache = false;  // k_out and v_out lie in one buffer
  uint32_t width = 1;      // elements of a UNIT
  std::vector<RowSlice> slices;
};

std::vector<std::string> qk_norm_rope_variants(const gpu::Capabilities& capabilities);
Result<QkNormRopePlan> plan_qk_norm_rope(const compute::QkNormRopeArgs& args, const gpu::Capabilities& capabilities,
                                         std::string_view forced);
Status record_qk_norm_rope(WebgpuContext& context, const compute::QkNormRopeArgs& args);

}  // namespace chorus::kernels
