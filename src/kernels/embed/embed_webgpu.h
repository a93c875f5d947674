// embed on WebGPU: one dispatch per shard of the table, each writing the rows whose ids it holds. An output larger than a binding is
// written in slices of rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// Layout of Params in embed.wgsl.
struct EmbedParams {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t quads_per_row = 0;
  uint32_t table_rows = 0;
  uint32_t shard_first_row = 0;
  uint32_t shard_rows = 0;
  uint32_t out_offset = 0;
  uint32_t out_stride = 0;
  uint32_t chunks_per_row = 0;
  uint32_t first_row = 0;
  uint32_t padding[2] = {};
};
static_assert(sizeof(EmbedParams) == 48);

struct EmbedStep {
  size_t shard = 0;
  EmbedParams params;
  gpu::Grid grid;
  gpu::Binding out;
};

struct EmbedPlan {
  const gpu::ShaderSource* shader = nullptr;
  gpu::Binding ids;
  std::vector<EmbedStep> steps;  // one dispatch each; empty: nothing to do
};

std::vector<std::string> embed_variants(const gpu::Capabilities& capabilities);
Result<EmbedPlan> plan_embed(const compute::EmbedArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_embed(WebgpuContext& context, const compute::EmbedArgs& args);

}  // namespace chorus::kernels
