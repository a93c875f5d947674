// WebGPU half of attention. The keys a row sees are cut into parts whose bounds depend on the prefix length and the length of the row's own
// sequence only; parts run in parallel and attention_merge combines them. Rows run in slices that bound the scratch memory.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

// Keys of one part; multiples of the 64-key tile.
uint32_t prefix_part_keys(uint32_t prefix_rows);
uint32_t own_part_keys(uint32_t length);  // also in own_part_keys.wgsl

enum class AttentionStepKind {
  prefix,  // all rows of a slice against parts of the prefix -> scratch
  own,     // rows of the slice against parts of their own sequences -> scratch
  direct,  // rows whose only part is their own sequence's -> output
  merge,   // scratch -> output
};

struct AttentionStep {
  AttentionStepKind kind = AttentionStepKind::own;
  const gpu::ShaderSource* shader = nullptr;
  RowSlice rows;
  RowSlice key_rows;  // rows of the prefix or of own_k and own_v that are bound
  uint32_t first_part = 0, part_count = 1;
  uint32_t first_sequence = 0, sequence_count = 0;
  uint32_t first_block = 0, block_count = 0;
  uint32_t min_length = 0, max_length = UINT32_MAX;
  uint64_t workgroups = 0;
};

struct AttentionPlan {
  std::vector<AttentionStep> steps;
  uint32_t prefix_parts = 0;
  uint32_t own_parts = 1;     // most of any sequence
  uint32_t slice_rows = 0;    // of the biggest slice
  uint64_t prefix_slots = 0;  // (part, row, query head) slots of scratch
  uint64_t own_slots = 0;
};

std::vector<std::string> attention_variants(const gpu::Capabilities& capabilities);
Result<AttentionPlan> plan_attention(const compute::AttentionArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_attention(WebgpuContext& context, const compute::AttentionArgs& args);

}  // namespace chorus::kernels
