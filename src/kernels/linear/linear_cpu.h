// linear on the processor; the operation is documented in compute/ops.h.
#pragma once

#include <string_view>

#include "kernels/common/cpu_context.h"

namespace chorus::kernels {

Status linear_cpu(CpuContext& context, const compute::LinearArgs& args);

// The product behind linear and head_linear: out[r, h * N + n] (=|+=) sum_k x[r, h * x_head_stride + k] * w[h * N + n, k] + bias[h * N +
// n].
struct PanelProduct {
  const CpuWeight& weight;  // [heads * N, K]
  Rows x;
  MutableRows out;
  uint64_t row_count = 0;
  uint64_t heads = 1;
  uint64_t x_head_stride = 0;  // elements
  const float* bias = nullptr;
  bool add = false;

  uint64_t panels_of_a_head() const;  // at most
};
// The order of an output's sum depends on K alone. variant: a SIMD target, or empty.
Status multiply_panels(CpuContext& context, std::string_view variant, const PanelProduct& product);

}  // namespace chorus::kernels
