// Float64 twin of expert_ffn for one route, with a bound on what f32 may be off by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/backend.h"

namespace chorus::kernels {

// An expert as plain matrices, values as stored (rounded to their type).
struct ExpertValues {
  std::vector<double> gate_up, down;            // [2 * inner, hidden], [hidden, inner]
  std::vector<double> gate_up_bias, down_bias;  // [2 * inner], [hidden]; or empty
};

struct ExpertFfnReference {
  std::vector<double> out;        // [hidden]
  std::vector<double> tolerance;  // [hidden]
};

// A value with a bound on the error of its f32 twin.
struct Bounded {
  double value = 0, error = 0;
};

// sum of w * x + bias. A sum of K products in any order is off by at most (K + 2) * 2^-24 of the sum of magnitudes (Higham 2002, 3.1).
inline Bounded reference_dot(std::span<const double> w, std::span<const Bounded> x, double bias) {
  Bounded sum{bias, 0};
  double magnitude = std::abs(bias);
  for (size_t k = 0; k < w.size(); ++k) {
    sum.value += w[k] * x[k].value;
    sum.error += std::abs(w[k]) * x[k].error;
    magnitude += std::abs(w[k]) * (std::abs(x[k].value) + x[k].error);
  }
  sum.error += (static_cast<double>(w.size()) + 4) * 0x1p-24 * magnitude;
  return sum;
}

// The slope of g * sigmoid(a g) is at most 1.1 (at a g = 2.4). WGSL allows exp(x) an error of 3 + 2 |x| units in the last place, and a
// division 2.5; the clamps and the products add less than 8 more. Below e^-87 the sigmoid may be zero.
inline Bounded reference_activation(const compute::ExpertFfnArgs& args, Bounded gate, Bounded up) {
  const bool clamped = args.activation == compute::ExpertActivation::clamped_swiglu;
  const double limit = args.limit, alpha = clamped ? args.alpha : 1;
  if (clamped) {
    gate.value = std::min(gate.value, limit);
    up.value = std::clamp(up.value, -limit, limit) + 1;
  }
  const double swish = gate.value / (1 + std::exp(-alpha * gate.value));
  const double swish_error =
      1.1 * gate.error + 0x1p-23 * (12 + 2 * std::abs(alpha * gate.value)) * std::abs(swish) + std::abs(gate.value) * 0x1p-125;
  Bounded result{swish * up.value, 0};
  const double up_error = up.error + 0x1p-24 * std::abs(up.value);
  result.error = swish_error * std::abs(up.value) + up_error * (std::abs(swish) + swish_error) + 0x1p-24 * std::abs(result.value) + 1e-38;
  return result;
}

// x: [hidden]. Activation and its constants are those of `args`.
inline ExpertFfnReference reference_expert_ffn(const compute::ExpertFfnArgs& args, const ExpertValues& expert, std::span<const float> x) {
  const size_t hidden = x.size(), inner = expert.gate_up.size() / hidden / 2;
  const std::span<const double> gate_up(expert.gate_up), down(expert.down);
  std::vector<Bounded> input, middle;
  for (const float value : x) input.push_back({value, 0});
  for (size_t i = 0; i < inner; ++i) {
    const auto project = [&](size_t row) {
      return reference_dot(gate_up.subspan(row * hidden, hidden), input, expert.gate_up_bias.empty() ? 0 : expert.gate_up_bias[row]);
    };
    middle.push_back(reference_activation(args, project(i), project(inner + i)));
  }
  ExpertFfnReference result;
  for (size_t n = 0; n < hidden; ++n) {
    const Bounded out = reference_dot(down.subspan(n * inner, inner), middle, expert.down_bias.empty() ? 0 : expert.down_bias[n]);
    result.out.push_back(out.value);
    result.tolerance.push_back(out.error);
  }
  return result;
}

}  // namespace chorus::kernels
