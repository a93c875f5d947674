// expert_ffn on WebGPU: two products with the activation between them. Few rows: every route by itself (expert_ffn_row.wgsl), bound by
// reading the weights. Many rows: routes sorted by expert (expert_ffn_sort.wgsl) and multiplied in tiles (expert_ffn_tile.wgsl). A bank of
// several storages takes the dispatches once for each; routes of the others are left alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/row_windows_webgpu.h"
#include "kernels/common/webgpu_expert_bank.h"

namespace chorus::kernels {

// Layout of Params in params.wgsl.
struct ExpertFfnParams {
  uint32_t routes = 0;
  uint32_t top_k = 0;
  uint32_t hidden = 0;
  uint32_t inner = 0;
  uint32_t x_offset = 0;
  uint32_t x_stride = 0;
  uint32_t out_offset = 0;
  uint32_t out_stride = 0;
  uint32_t middle_stride = 0;
  uint32_t route_first = 0;
  uint32_t slot_first = 0;
  uint32_t slot_count = 0;
  uint32_t record_quads = 0;
  uint32_t gate_up_quads = 0;
  uint32_t down_quads = 0;
  uint32_t down_offset = 0;
  uint32_t gate_up_bias = 0;
  uint32_t down_bias = 0;
  uint32_t flags = 0;
  float alpha = 0;
  float limit = 0;
  uint32_t workgroups = 0;
  uint32_t row_groups = 0;
  uint32_t group_rows = 0;
  uint32_t counts_at = 0;
  uint32_t routes_at = 0;
  uint32_t tile_routes = 0;
  uint32_t tile_quads = 8;
};
static_assert(sizeof(ExpertFfnParams) == 112);
inline constexpr uint32_t kExpertFfnFlagBias = 1;
inline constexpr uint32_t kExpertFfnFlagClamped = 2;

struct ExpertFfnProduct {
  ExpertFfnParams params;
  gpu::Grid grid;
};

// One slice of rows through one storage of the bank.
struct ExpertFfnStep {
  RowSlice slice;  // of x
  gpu::Binding x, out, records;
  ExpertFfnProduct gate_up, down;
  uint64_t middle_bytes = 0;
  uint64_t table_bytes = 0;  // of sorted routes; 0 in the row variants
};

struct ExpertFfnPlan {
  std::string variant;
  const gpu::ShaderSource* sort = nullptr;  // null in the row variants
  const gpu::ShaderSource* gate_up = nullptr;
  const gpu::ShaderSource* down = nullptr;
  std::vector<ExpertFfnStep> steps;
};

std::vector<std::string> expert_ffn_variants(const gpu::Capabilities& capabilities);
Result<ExpertFfnPlan> plan_expert_ffn(const compute::ExpertFfnArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_expert_ffn(WebgpuContext& context, const compute::ExpertFfnArgs& args);

}  // namespace chorus::kernels
