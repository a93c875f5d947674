// Scores of a row by vectors, then top_k passes over them for the choice: a row is a few hundred experts at most.
#include "kernels/router/router_cpu.h"

#include <cmath>
#include <limits>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/router/router_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

float largest_of(const float* values, uint64_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (uint64_t i = 0; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

// s of every expert of a row. The sum of the softmax runs over the experts in order, in f64: the same on every target.
void router_scores(const float* logits, uint64_t count, bool softmax, float* scores) {
  const Floats d;
  if (!softmax) {
    for_vectors(count, [&](const auto& load, const auto& store) HWY_ATTR { store(sigmoid(d, load(logits)), scores); });
    return;
  }
  const Vector largest = hn::Set(d, largest_of(logits, count));
  for_vectors(count,
              [&](const auto& load, const auto& store) HWY_ATTR { store(exp_of_nonpositive(d, hn::Sub(load(logits), largest)), scores); });
  double sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += static_cast<double>(scores[i]);
  const Vector divisor = hn::Set(d, static_cast<float>(sum));
  for_vectors(count, [&](const auto& load, const auto& store) HWY_ATTR { store(hn::Div(load(scores), divisor), scores); });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {
namespace {

HWY_EXPORT(router_scores);

constexpr float kTaken = -std::numeric_limits<float>::infinity();

// Index of the largest value, the lowest of equals. Values are finite or kTaken; one at least is finite.
uint64_t best_of(const float* values, uint64_t count) {
  uint64_t best = 0;
  for (uint64_t i = 1; i < count; ++i) best = values[i] > values[best] ? i : best;
  return best;
}

float two_largest(const float* values, uint64_t count) {
  float first = kTaken, second = kTaken;
  for (uint64_t i = 0; i < count; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return first + second;
}

// Leaves only the candidates of the best groups. ranks: [groups] of working memory.
void keep_best_groups(const compute::RouterArgs& args, float* choice, float* ranks) {
  const uint64_t size = args.logits.cols / args.groups;
  for (uint64_t group = 0; group < args.groups; ++group) ranks[group] = two_largest(choice + group * size, size);
  for (uint64_t kept = 0; kept < args.groups_kept; ++kept) ranks[best_of(ranks, args.groups)] = kTaken;
  for (uint64_t group = 0; group < args.groups; ++group) {
    if (ranks[group] != kTaken) std::fill_n(choice + group * size, size, kTaken);
  }
}

struct RowWork {
  float *scores, *choice, *ranks;
};

// c of every expert; false when a value that takes part is not finite.
bool make_choice(const float* logits, const float* bias, uint64_t count, const RowWork& work) {
  for (uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(logits[i]) || (bias && !std::isfinite(bias[i]))) return false;
    work.choice[i] = bias ? work.scores[i] + bias[i] : work.scores[i];
  }
  return true;
}

void route_row(const compute::RouterArgs& args, const float* logits, int64_t target, const RowWork& work, uint32_t* experts,
               float* weights) {
  const uint64_t count = args.logits.cols;
  CHORUS_SIMD(router_scores, target)(logits, count, args.score == compute::RouterScore::softmax, work.scores);
  if (!make_choice(logits, args.bias ? floats(args.bias) : nullptr, count, work)) {
    std::fill_n(experts, args.top_k, compute::kNoSlot);
    std::fill_n(weights, args.top_k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (args.groups > 1) keep_best_groups(args, work.choice, work.ranks);
  float sum = 0;
  for (uint32_t rank = 0; rank < args.top_k; ++rank) {
    const uint64_t expert = best_of(work.choice, count);
    work.choice[expert] = kTaken;
    experts[rank] = static_cast<uint32_t>(expert);
    weights[rank] = work.scores[expert];
    sum += weights[rank];
  }
  const float divisor = args.renormalise ? sum + 1e-20f : 1.0f;
  for (uint32_t rank = 0; rank < args.top_k; ++rank) weights[rank] = weights[rank] / divisor * args.scale;
}

}  // namespace

Status router_cpu(CpuContext& context, const compute::RouterArgs& args) {
  const int64_t target = simd_target(context.forced_variant("router"));
  const Rows logits(args.logits);
  const uint64_t count = args.logits.cols, worker_floats = 2 * count + args.groups;
  CHORUS_ASSIGN(float* work, context.scratch.acquire_floats("router", worker_floats * context.pool.threads()));
  uint32_t* experts = reinterpret_cast<uint32_t*>(floats(args.experts));
  float* weights = floats(args.weights);
  for_row_ranges(context.pool, args.logits.rows, count * 8, [&](uint64_t first, uint64_t last, uint32_t worker) {
    float* own = work + worker * worker_floats;
    for (uint64_t row = first; row < last; ++row) {
      route_row(args, logits.row(row), target, {own, own + count, own + 2 * count}, experts + row * args.top_k, weights + row * args.top_k);
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
