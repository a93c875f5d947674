// WebGPU half of rope.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

// Layout of Params in rope.wgsl.
struct RopeParams {
  uint32_t heads = 0, head_dim = 0, first = 0, half = 0;
  uint32_t items = 0;
  uint32_t interleaved = 0;
  uint32_t x_offset = 0, x_stride = 0;
  uint32_t cosine_offset = 0, cosine_stride = 0;
  uint32_t sine_offset = 0, sine_stride = 0;
  uint32_t out_offset = 0, out_stride = 0;
  uint32_t count = 0, workgroups = 0;
};
static_assert(sizeof(RopeParams) == 64);

struct RopePlan {
  const gpu::ShaderSource* shader = nullptr;
  bool in_place = false;
  uint32_t items = 0;  // invocations a head
  std::vector<RowSlice> slices;
};

std::vector<std::string> rope_variants(const gpu::Capabilities& capabilities);
Result<RopePlan> plan_rope(const compute::RopeArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_rope(WebgpuContext& context, const compute::RopeArgs& args);

}  // namespace chorus::kernels
