// Float64 twin of the gated RMSNorm (compute/ops.h, GatedRmsNormArgs), on dense row-major data.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus::kernels {

inline double reference_silu(double x) { return x / (1.0 + std::exp(-x)); }

// x, gate: [rows, cols], cols a multiple of head_dim; weight: [head_dim]. Returns [rows, cols].
inline std::vector<double> gated_rms_norm_reference(std::span<const float> x, std::span<const float> gate, std::span<const float> weight,
                                                    uint32_t rows, uint32_t cols, uint32_t head_dim, double epsilon) {
  std::vector<double> out(static_cast<size_t>(rows) * cols);
  for (size_t begin = 0; begin < out.size(); begin += head_dim) {
    double squares = 0;
    for (size_t i = 0; i < head_dim; ++i) squares += static_cast<double>(x[begin + i]) * x[begin + i];
    const double scale = 1.0 / std::sqrt(squares / head_dim + epsilon);
    for (size_t i = 0; i < head_dim; ++i) out[begin + i] = x[begin + i] * scale * weight[i] * reference_silu(gate[begin + i]);
  }
  return out;
}

}  // namespace chorus::kernels
