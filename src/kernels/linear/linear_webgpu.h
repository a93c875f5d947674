// linear on WebGPU: tiles of the product in plain f32 (linear.wgsl) or through f16 subgroup matrices (linear_matrix.wgsl, fed by
// linear_terms.wgsl), or rows of it for few rows of x (linear_row.wgsl); split sums are added by linear_reduce.wgsl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/row_windows_webgpu.h"

namespace chorus::kernels {

// Layout of Params in params.wgsl.
struct LinearParams {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t depth = 0;
  uint32_t weight_quads = 0;
  uint32_t x_offset = 0;
  uint32_t x_stride = 0;
  uint32_t result_offset = 0;
  uint32_t result_stride = 0;
  uint32_t bias_offset = 0;
  uint32_t flags = 0;
  uint32_t tiles_m = 0;
  uint32_t tiles_n = 0;
  uint32_t splits = 1;
  uint32_t split_quads = 0;
  uint32_t split_stride = 0;
  uint32_t band = 0;
  uint32_t normed_offset = 0;
  uint32_t normed_stride = 0;
  float epsilon = 0;
  float norm_shift = 0;
};
static_assert(sizeof(LinearParams) == 80);
inline constexpr uint32_t kLinearFlagBias = 1;
inline constexpr uint32_t kLinearFlagAdd = 2;

// Layout of Params in linear_terms.wgsl.
struct LinearTermsParams {
  uint32_t rows = 0;
  uint32_t quads = 0;
  uint32_t octs = 0;
  uint32_t depth = 0;
  uint32_t x_offset = 0;
  uint32_t x_stride = 0;
  uint32_t plane = 0;
  uint32_t padding = 0;
};
static_assert(sizeof(LinearTermsParams) == 32);

// Layout of Params in linear_matrix.wgsl.
struct LinearMatrixParams {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t octs = 0;
  uint32_t x_plane = 0;
  uint32_t w_plane = 0;
  uint32_t result_offset = 0;
  uint32_t result_stride = 0;
  uint32_t bias_offset = 0;
  uint32_t flags = 0;
  uint32_t tiles_m = 0;
  uint32_t tiles_n = 0;
  uint32_t splits = 1;
  uint32_t split_octs = 0;
  uint32_t split_stride = 0;
  uint32_t band = 0;
  uint32_t padding = 0;
};
static_assert(sizeof(LinearMatrixParams) == 64);
inline constexpr uint32_t kLinearFlagWeightScales = 4;

// Writing an operand as sums of f16 terms into scratch.
struct LinearTerms {
  const gpu::ShaderSource* shader = nullptr;  // null: the operand is used as it is
  LinearTermsParams params;
  gpu::Grid grid;
  uint64_t plane_bytes = 0;    // of all planes
  uint64_t reserve_bytes = 0;  // scratch to ask for at least
};

struct LinearMatrix {
  LinearTerms x, weight;
  LinearMatrixParams params;
};

// The product of one slice of rows and one shard of the weight, or a part of one.
struct LinearStep {
  RowSlice slice;
  gpu::Binding weight;  // a shard, or a part of one
  const gpu::ShaderSource* shader = nullptr;
  std::optional<LinearMatrix> matrix;  // then `shader` takes these parameters
  LinearParams params;                 // x_offset and, without splits, result_offset count from the start of the binding
  gpu::Grid grid;
  gpu::Binding x, out;
  std::vector<gpu::Binding> norm;  // of x: weight and normed rows; empty without one
  // With splits the product goes to scratch and these add its planes into `out`.
  uint64_t scratch_bytes = 0;
  const gpu::ShaderSource* reduce_shader = nullptr;
  LinearParams reduce_params;
  gpu::Grid reduce_grid;
};

struct LinearPlan {
  std::string variant;  // of the first step
  std::vector<LinearStep> steps;
};

// What a product of one slice and one shard is, as far as cutting it matters.
struct LinearShape {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t weight_quads = 0;
  DType dtype = DType::f32;
};

// How the product is cut: chosen for the least time by a simple model of the device.
struct LinearCut {
  std::string_view variant;
  uint32_t tile_rows = 0, tile_cols = 0;
  uint32_t splits = 1;        // of k
  uint32_t split_quads = 0;   // vec4s of k in each split but the last
  uint32_t weight_terms = 0;  // f16 terms per weight; 0: plain arithmetic
};
LinearCut cut_linear(const LinearShape& shape, const gpu::Capabilities& capabilities, std::string_view forced);

std::vector<std::string> linear_variants(const gpu::Capabilities& capabilities);
Result<LinearPlan> plan_linear(const compute::LinearArgs& args, const gpu::Capabilities& capabilities, std::string_view forced);
// Whether the product can make args.norm on its way; else rms_norm has to come before.
bool linear_takes_norm(const compute::LinearArgs& args, std::string_view forced);
Status record_linear(WebgpuContext& context, const compute::LinearArgs& args);

}  // namespace chorus::kernels
