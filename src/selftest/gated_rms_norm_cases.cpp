// Known answers of the gated RMSNorm. Tolerance: the mean of n squares has a relative error of at most (n / 32 + 8) u whatever the order of
// a tree over 32 lanes, halved by the square root; weight, SiLU (exp: 3 + 2|x| units in the last place) and products add about 24 more,
// all relative to the result's own size, plus exp's share for very negative gates, where |silu| < 2 |gate| e^gate.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/gated_rms_norm/gated_rms_norm_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace gated_rms_norm_cases {

constexpr const char* kOperation = "gated_rms_norm";
constexpr double kUnitRoundoff = 0x1p-24;

struct Case {
  uint32_t rows = 0, heads = 0, head_dim = 0;
  uint32_t gap = 0;  // extra elements between rows
  float x_scale = 1, gate_scale = 4;
  bool in_place = false;
};

std::string name_of(const Case& spec) {
  return std::to_string(spec.rows) + " rows x " + std::to_string(spec.heads) + " heads of " + std::to_string(spec.head_dim) + " gap " +
         std::to_string(spec.gap) + " scales " + std::to_string(spec.x_scale) + " " + std::to_string(spec.gate_scale) +
         (spec.in_place ? " in place" : "");
}

std::vector<float> spread(const std::vector<float>& dense, uint32_t rows, uint32_t cols, uint32_t stride) {
  std::vector<float> padded(static_cast<size_t>(rows) * stride + 4, std::nanf(""));
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(dense.begin() + static_cast<ptrdiff_t>(row * cols), cols, padded.begin() + static_cast<ptrdiff_t>(row * stride));
  }
  return padded;
}

Result<CaseResult> run_case(compute::Backend& backend, const std::string& variant, const Case& spec) {
  Random random(spec.rows * 31 + spec.heads * 7 + spec.head_dim);
  const uint32_t cols = spec.heads * spec.head_dim, stride = cols + spec.gap;
  const size_t count = static_cast<size_t>(spec.rows) * cols;
  const std::vector<float> x = random.vector(count, -spec.x_scale, spec.x_scale);
  const std::vector<float> gate = random.vector(count, -spec.gate_scale, spec.gate_scale);
  const std::vector<float> weight = random.vector(spec.head_dim, -2, 2);
  CHORUS_ASSIGN(auto x_buffer, upload(backend, spread(x, spec.rows, cols, stride)));
  CHORUS_ASSIGN(auto gate_buffer, upload(backend, spread(gate, spec.rows, cols, stride)));
  CHORUS_ASSIGN(auto weight_buffer, upload(backend, weight));
  Result<GuardedOutput> made =
      spec.in_place ? make_output(backend, spec.rows, cols, stride, x) : make_output(backend, spec.rows, cols, stride);
  CHORUS_ASSIGN(const GuardedOutput out, std::move(made));
  compute::GatedRmsNormArgs args;
  args.x = {x_buffer.get(), 0, spec.rows, cols, stride};
  if (spec.in_place) args.x = out.view;
  args.gate = {gate_buffer.get(), 0, spec.rows, cols, stride};
  args.weight = weight_buffer.get();
  args.head_dim = spec.head_dim;
  args.out = out.view;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->gated_rms_norm(args));
  CHORUS_TRY(batch->submit());
  const std::vector<double> expected =
      kernels::gated_rms_norm_reference(x, gate, weight, spec.rows, cols, spec.head_dim, static_cast<double>(args.epsilon));
  const auto tolerance = [&](size_t i) {
    const double roundings = 24 + 0.5 * (spec.head_dim / 32.0 + 8) + 2 * std::fabs(static_cast<double>(gate[i]));
    return kUnitRoundoff * roundings * std::fabs(expected[i]) + 1e-30;
  };
  return compare(backend, out, expected, tolerance, kOperation, variant, name_of(spec));
}

std::vector<Case> cases_of(CaseSet set) {
  std::vector<Case> cases = {{5, 3, 128}, {9, 2, 16, 3}, {4, 2, 32, 0, 1, 4, true}, {3, 2, 20, 1, 1, 4, true}};
  if (set == CaseSet::quick) return cases;
  const std::vector<Case> more = {
      {0, 2, 16},           {1, 1, 1},           {1, 1, 128},          {7, 1, 31},    {3, 5, 257},          {2, 2, 1024}, {2, 16, 128, 4},
      {3, 2, 64, 0, 1e-4f}, {3, 2, 64, 0, 1e4f}, {3, 2, 64, 0, 1, 80}, {66000, 8, 4}, {3, 2, 64, 0, 1e-12f}};
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace gated_rms_norm_cases

std::vector<CaseResult> run_gated_rms_norm_cases(compute::Backend& backend, CaseSet set) {
  using namespace gated_rms_norm_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Case& spec : cases_of(set)) {
      Result<CaseResult> result = run_case(backend, variant, spec);
      results.push_back(result.ok() ? std::move(*result) : failed(kOperation, variant, name_of(spec), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
