// Known-answer cases of the router: both scores, bias, groups, ties, odd counts, rows that are not finite.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/router/router_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace router_cases {

using compute::RouterScore;

constexpr const char* kOperation = "router";
constexpr uint32_t kGuard = 16;  // elements behind each output that must stay as they are

struct Shape {
  uint32_t rows, experts, top_k;
  RouterScore score = RouterScore::softmax;
  uint32_t groups = 1, groups_kept = 1;
  bool bias = false, renormalise = false;
  uint32_t gap = 0, offset = 0;
  float scale = 1;
  bool ties = false;
};

std::string name_of(const Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.experts) + " top " + std::to_string(shape.top_k) +
         (shape.score == RouterScore::softmax ? " softmax" : " sigmoid") + " groups " + std::to_string(shape.groups_kept) + " of " +
         std::to_string(shape.groups) + " gap " + std::to_string(shape.gap) + " offset " + std::to_string(shape.offset) +
         (shape.bias ? ", bias" : "") + (shape.renormalise ? ", renormalised" : "") + (shape.ties ? ", ties" : "");
}

// Whether neighbours in sorted order are equal or well apart, so that rounding cannot change a choice.
bool well_apart(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  for (size_t i = 1; i < values.size(); ++i) {
    const double gap = values[i] - values[i - 1];
    if (gap != 0 && gap < 4e-6) return false;
  }
  return true;
}

bool good_row(const Shape& shape, std::span<const float> logits, std::span<const float> bias) {
  std::vector<double> choice = kernels::reference_scores(logits, shape.score), ranks;
  for (size_t i = 0; i < bias.size(); ++i) choice[i] += bias[i];
  if (shape.groups > 1) {
    const size_t size = choice.size() / shape.groups;
    for (size_t first = 0; first < choice.size(); first += size) {
      std::vector<double> members(choice.begin() + static_cast<ptrdiff_t>(first), choice.begin() + static_cast<ptrdiff_t>(first + size));
      std::sort(members.rbegin(), members.rend());
      ranks.push_back(members[0] + members[1]);
    }
  }
  // Only the upper part of a row can be chosen; the tail of a softmax over many experts is crowded.
  std::sort(choice.rbegin(), choice.rend());
  choice.resize(std::min<size_t>(choice.size(), shape.groups > 1 ? choice.size() : shape.top_k + 1));
  return well_apart(choice) && well_apart(ranks);
}

std::vector<float> make_row(const Shape& shape, Random& random, std::span<const float> bias) {
  for (;;) {
    std::vector<float> row = random.vector(shape.experts, -4, 4);
    if (shape.ties) {
      for (float& value : row) value = std::round(value);
    }
    if (good_row(shape, row, bias)) return row;
  }
}

struct Found {
  std::vector<uint32_t> experts;
  std::vector<float> weights;
};

Result<Found> run_router(compute::Backend& backend, const Shape& shape, std::span<const float> logits, std::span<const float> bias) {
  CHORUS_ASSIGN(StridedInput in, make_input(backend, logits, shape.rows, shape.experts, shape.experts + shape.gap, shape.offset));
  const size_t count = size_t{shape.rows} * shape.top_k;
  const std::vector<float> poison(count + kGuard, kSentinel);
  CHORUS_ASSIGN(auto experts, upload(backend, poison));
  CHORUS_ASSIGN(auto weights, upload(backend, poison));
  CHORUS_ASSIGN(auto bias_buffer, upload(backend, bias));
  compute::RouterArgs args{in.view,           bias.empty() ? nullptr : bias_buffer.get(),
                           shape.score,       shape.groups,
                           shape.groups_kept, shape.top_k,
                           shape.renormalise, shape.scale,
                           experts.get(),     weights.get()};
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->router(args));
  CHORUS_TRY(batch->submit());
  Found found;
  CHORUS_ASSIGN(found.weights, download(backend, *weights));
  found.experts.resize(count + kGuard);
  CHORUS_TRY(backend.read(*experts, 0, std::as_writable_bytes(std::span(found.experts))));
  return found;
}

bool guards_hold(const Found& found, size_t count) {
  for (size_t i = count; i < count + kGuard; ++i) {
    if (found.weights[i] != kSentinel || std::bit_cast<float>(found.experts[i]) != kSentinel) return false;
  }
  return true;
}

void judge(const Shape& shape, const Found& found, const kernels::RouterReference& expected, CaseResult& result) {
  // exp of numbers in [-8, 0] in WGSL: 3 + 2 * 8 units in the last place, in the score and in the sum; the sums of the softmax and of
  // the renormalisation in any order; divisions and the scale.
  const double relative = 0x1p-23 * (2 * 19 + shape.experts / 2.0 + shape.top_k + 8);
  const size_t count = expected.experts.size();
  for (size_t i = 0; i < count; ++i) {
    const double error = std::abs(found.weights[i] - expected.weights[i]), tolerance = relative * std::abs(expected.weights[i]);
    if (!(error <= tolerance) || found.experts[i] != expected.experts[i]) {
      result.pass = false;
      result.detail = "row " + std::to_string(i / shape.top_k) + " rank " + std::to_string(i % shape.top_k) + ": expected " +
                      std::to_string(expected.experts[i]) + " with " + std::to_string(expected.weights[i]) + ", found " +
                      std::to_string(found.experts[i]) + " with " + std::to_string(found.weights[i]);
      result.error = error;
      result.tolerance = tolerance;
      return;
    }
    if (error >= result.error) {
      result.error = error;
      result.tolerance = tolerance;
    }
  }
  if (!guards_hold(found, count)) {
    result.pass = false;
    result.detail = "wrote behind an output";
  }
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  Random random(shape.rows * 53 + shape.experts * 7 + shape.top_k);
  const std::vector<float> bias = random.vector(shape.bias ? shape.experts : 0, -0.5f, 0.5f);
  std::vector<float> logits;
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const std::vector<float> values = make_row(shape, random, bias);
    logits.insert(logits.end(), values.begin(), values.end());
  }
  CHORUS_ASSIGN(const Found found, run_router(backend, shape, logits, bias));
  compute::RouterArgs args;
  args.logits = {nullptr, 0, shape.rows, shape.experts, shape.experts};
  args.score = shape.score;
  args.groups = shape.groups;
  args.groups_kept = shape.groups_kept;
  args.top_k = shape.top_k;
  args.renormalise = shape.renormalise;
  args.scale = shape.scale;
  CaseResult result{kOperation, variant, name_of(shape), 0, 0, true, {}};
  judge(shape, found, kernels::reference_router(args, logits, bias), result);
  return result;
}

// Rows with NaN, infinities or (last) nothing wrong: only the last has experts.
Result<CaseResult> run_not_finite(compute::Backend& backend, const std::string& variant, RouterScore score, bool bias_at_fault) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const Shape shape{4, 70, 3, score};
  std::vector<float> logits = Random(5).vector(size_t{shape.rows} * shape.experts);
  std::vector<float> bias(bias_at_fault ? shape.experts : 0, 0.25f);
  if (bias_at_fault) {
    bias[69] = kNan;
  } else {
    logits[69] = kNan;
    logits[70] = kInfinity;
    logits[2 * 70 + 33] = -kInfinity;
  }
  CHORUS_ASSIGN(const Found found, run_router(backend, shape, logits, bias));
  CaseResult result{kOperation, variant, std::string("not finite, ") + (bias_at_fault ? "bias" : "logits"), 0, 0, true, {}};
  for (size_t i = 0; i < 12; ++i) {
    const bool failed_row = bias_at_fault || i < 9;
    const bool good = failed_row ? found.experts[i] == compute::kNoSlot && std::isnan(found.weights[i])
                                 : found.experts[i] < shape.experts && std::isfinite(found.weights[i]);
    if (good) continue;
    result.pass = false;
    result.detail = "route " + std::to_string(i) + ": found expert " + std::to_string(found.experts[i]) + " with weight " +
                    std::to_string(found.weights[i]);
  }
  return result;
}

std::vector<Shape> shapes_of(CaseSet set) {
  constexpr RouterScore kSoftmax = RouterScore::softmax, kSigmoid = RouterScore::sigmoid;
  std::vector<Shape> shapes = {
      {3, 64, 8, kSoftmax, 1, 1, false, true},
      {5, 48, 4, kSigmoid, 8, 3, true, true, 3, 5, 2.5f},
      {2, 37, 5, kSoftmax, 1, 1, false, false, 1, 2, 1, true},
  };
  if (set != CaseSet::full) return shapes;
  const std::vector<Shape> more = {
      {0, 8, 2},
      {1, 1, 1},
      {3, 2, 2, kSigmoid, 1, 1, true},
      {9, 32, 32, kSoftmax, 1, 1, false, true},
      {4, 128, 8, kSoftmax, 1, 1, false, true},
      {20, 256, 8, kSigmoid, 8, 4, true, true, 0, 0, 2.5f},
      {3, 257, 6, kSigmoid, 1, 1, true, false, 2, 1, 0.5f},
      {2, 384, 8, kSigmoid, 1, 1, true, true, 0, 4, 2.827f},
      {6, 60, 6, kSigmoid, 6, 2, false, true, 0, 0, 1, true},
      {50, 16, 2, kSoftmax, 4, 2, true, true},
      {1, 1030, 31, kSigmoid, 1, 1, false, false, 0, 0, 1, true},
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

}  // namespace router_cases

std::vector<CaseResult> run_router_cases(compute::Backend& backend, CaseSet set) {
  using namespace router_cases;
  std::vector<CaseResult> results;
  const auto add = [&](const std::string& variant, const std::string& name, Result<CaseResult> result) {
    results.push_back(result ? *result : failed(kOperation, variant, name, result.error()));
  };
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes_of(set)) add(variant, name_of(shape), run_one(backend, variant, shape));
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
      for (const bool bias : {false, true}) add(variant, "not finite", run_not_finite(backend, variant, score, bias));
    }
  });
  return results;
}

}  // namespace chorus::selftest
