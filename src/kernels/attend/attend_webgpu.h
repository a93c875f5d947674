// WebGPU half of attend. Keys are cut into blocks of 64, counted from key 0. Every way through them gives the same bits:
//   split    a workgroup takes one block of keys and a few rows; attend_combine joins the blocks in their order
//   tile     a workgroup takes many rows through all their blocks
// The plan chooses by row count and shapes. Rows run in slices, and blocks in rounds, that bound the scratch memory and fit the bindings.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

inline constexpr uint32_t kAttendBlockKeys = 64;

enum class AttendStepKind { split, combine, tile };

struct AttendStep {
  AttendStepKind kind = AttendStepKind::split;
  const gpu::ShaderSource* shader = nullptr;
  RowSlice rows;
  RowSlice keys;  // of the blocks of this round; bound
  uint32_t first_block = 0, block_count = 0;
  bool first_round = true, last_round = true;
  uint64_t workgroups = 0;
};

struct AttendPlan {
  std::vector<AttendStep> steps;
  uint64_t block_slots = 0;     // (block, row, query head) slots of scratch
  uint64_t gathered_slots = 0;  // (row, query head) slots that wait between rounds
};

std::vector<std::string> attend_variants(const gpu::Capabilities& capabilities);
Result<AttendPlan> plan_attend(const compute::AttendArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
Status record_attend(WebgpuContext& context, const compute::AttendArgs& args);

}  // namespace chorus::kernels
