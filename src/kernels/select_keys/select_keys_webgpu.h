// WebGPU half of select_keys: scores of a slice of rows go to scratch, as many keys at a time as a binding holds; then every row chooses;
// rows with more equal scores at the border than have room choose once more as the reference does.
#pragma once

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

struct SelectKeysStep {
  RowSlice rows;
  std::vector<RowSlice> keys;  // whole blocks of 64 keys that are scored at once
};

struct SelectKeysPlan {
  const gpu::ShaderSource* scores = nullptr;
  const gpu::ShaderSource* choose = nullptr;
  const gpu::ShaderSource* ties = nullptr;
  std::vector<SelectKeysStep> steps;
  uint64_t scratch_bytes = 0;
  uint32_t list_length = 0;  // entries of a list of select_keys_ties
  uint32_t lists = 0;        // workgroups of it, each with a list
};

std::vector<std::string> select_keys_variants(const gpu::Capabilities& capabilities);
Result<SelectKeysPlan> plan_select_keys(const compute::SelectKeysArgs& args, const gpu::Capabilities& capabilities,
                                        std::string_view forced);
Status record_select_keys(WebgpuContext& context, const compute::SelectKeysArgs& args);

}  // namespace chorus::kernels
