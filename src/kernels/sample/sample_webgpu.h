// WebGPU half of sample.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

// Layout of Params in sample.wgsl.
struct SampleParams {
  uint32_t rows = 0, vocabulary = 0;
  uint32_t logits_offset = 0, logits_stride = 0;
  uint32_t first_row = 0;
  uint32_t piece = 0, pieces = 0;
  uint32_t stage = 0;
  uint32_t row_words = 0, row_pieces = 0;
  uint32_t unused[2] = {};
};
static_assert(sizeof(SampleParams) == 48);

inline constexpr uint32_t kSampleStages = 20;  // sample.wgsl

struct SamplePlan {
  const gpu::ShaderSource* largest = nullptr;  // stage 0
  const gpu::ShaderSource* step = nullptr;     // the others
  uint32_t piece = 0;                          // logits a workgroup takes
  uint32_t pieces = 0;                         // of a row
  uint64_t state_bytes = 0;                    // of a row
  uint64_t histogram_bytes = 0;                // of a row
  std::vector<RowSlice> slices;                // one run of all stages each
};

std::vector<std::string> sample_variants(const gpu::Capabilities& capabilities);
Result<SamplePlan> plan_sample(const compute::SampleArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_sample(WebgpuContext& context, const compute::SampleArgs& args);

}  // namespace chorus::kernels
