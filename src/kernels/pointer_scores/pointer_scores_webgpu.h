// WebGPU half of pointer_scores.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct PointerScoresPlan {
  const gpu::ShaderSource* shader = nullptr;
  uint32_t width = 1;            // elements of a UNIT
  std::vector<RowSlice> slices;  // of the options
};

std::vector<std::string> pointer_scores_variants(const gpu::Capabilities& capabilities);
Result<PointerScoresPlan> plan_pointer_scores(const compute::PointerScoresArgs& args, const gpu::Capabilities& capabilities,
                                              std::string_view forced);
Status record_pointer_scores(WebgpuContext& context, const compute::PointerScoresArgs& args);

}  // namespace chorus::kernels
