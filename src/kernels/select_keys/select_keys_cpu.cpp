// Choice of keys: scores of a slice of rows as unsigned numbers of the same order, then per row the top_k-th largest and a bit per key.
// A score's sum runs over the heads in order, each product in one vector of partial sums, so it depends on the row and the key alone.
#include "kernels/select_keys/select_keys_cpu.h"

#include <bit>

#include "kernels/common/cpu_targets.h"
#include "kernels/select_keys/tie_order.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/select_keys/select_keys_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {
namespace {

// products[i] = q[first + i] . key
template <uint64_t kHeads>
HWY_INLINE void head_products(const float* q, const float* key, uint64_t dim, float* products) {
  const Floats d;
  Vector sum[kHeads];
#pragma GCC unroll 16
  for (uint64_t h = 0; h < kHeads; ++h) sum[h] = hn::Zero(d);
  uint64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) {
    const Vector line = hn::LoadU(d, key + at);
#pragma GCC unroll 16
    for (uint64_t h = 0; h < kHeads; ++h) sum[h] = hn::MulAdd(hn::LoadU(d, q + h * dim + at), line, sum[h]);
  }
  if (at < dim) {
    const Vector line = load_part(d, key + at, dim - at);
#pragma GCC unroll 16
    for (uint64_t h = 0; h < kHeads; ++h) sum[h] = hn::MulAdd(load_part(d, q + h * dim + at, dim - at), line, sum[h]);
  }
#pragma GCC unroll 16
  for (uint64_t h = 0; h < kHeads; ++h) products[h] = hn::GetLane(hn::SumOfLanes(d, sum[h]));
}

// Larger scores give larger numbers; -0 counts as 0, and a NaN is above all (as common/order_key.wgsl has it).
inline uint32_t ordered(float score) {
  if (score != score) return 0xffffffffu;
  const uint32_t bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Scores of one row against keys [first, end).
void score_keys(const compute::SelectKeysArgs& args, uint64_t row, uint64_t first, uint64_t end, uint32_t* scores) {
  const Rows keys(args.keys);
  const float* q = Rows(args.q).row(row);
  const float* weights = Rows(args.weights).row(row);
  constexpr uint64_t kHeads = 8;
  for (uint64_t key = first; key < end; ++key) {
    const float* line = keys.row(key);
    float score = 0, products[kHeads];
    const auto add = [&](uint64_t head, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) {
        const float scaled = products[i] * args.scale;
        score += weights[head + i] * (scaled < 0 ? 0.0f : scaled);
      }
    };
    uint64_t head = 0;
    for (; head + kHeads <= args.heads; head += kHeads) {
      head_products<kHeads>(q + head * args.head_dim, line, args.head_dim, products);
      add(head, kHeads);
    }
    for (; head < args.heads; ++head) {
      head_products<1>(q + head * args.head_dim, line, args.head_dim, products);
      add(head, 1);
    }
    scores[key] = ordered(score);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(score_keys);

namespace {

constexpr uint64_t kSliceScores = 4u << 20;  // scores held at a time, unless one row has more
constexpr uint64_t kTaskKeys = 256;

// Sets the bits of the `top` largest of scores[0, count); clears the others. work: `list` >= count numbers, the entries that the reference
// would choose from.
void choose(const uint32_t* scores, uint64_t count, uint64_t top, uint32_t* work, uint64_t list, uint32_t* selected, uint64_t words) {
  std::memset(selected, 0, words * sizeof(uint32_t));
  uint32_t threshold = 0;
  if (top < count) {
    std::copy_n(scores, count, work);
    std::nth_element(work, work + (top - 1), work + count, std::greater<>());
    threshold = work[top - 1];
    if (std::find(work + top, work + count, threshold) != work + count) {  // not all that equal the threshold have room
      TieOrder({scores, count}, {work, list}, top);
      for (uint64_t i = 0; i < top; ++i) selected[work[i] / 32] |= 1u << (work[i] % 32);
      return;
    }
  }
  for (uint64_t key = 0; key < count; ++key) {
    if (scores[key] >= threshold) selected[key / 32] |= 1u << (key % 32);
  }
}

}  // namespace

Status select_keys_cpu(CpuContext& context, const compute::SelectKeysArgs& args) {
  if (args.q.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("select_keys"));
  const uint64_t rows = args.q.rows, keys = args.keys.rows, words = (keys + 31) / 32;
  const uint64_t slice = std::min(rows, std::max<uint64_t>(1, kSliceScores / keys));
  const uint64_t longest = std::max<uint64_t>(args.horizon, keys);
  CHORUS_ASSIGN(std::byte * memory,
                context.scratch.acquire("select_keys", (slice * keys + context.pool.threads() * longest) * sizeof(uint32_t)));
  uint32_t* scores = reinterpret_cast<uint32_t*>(memory);
  uint32_t* work = scores + slice * keys;
  uint32_t* selected = reinterpret_cast<uint32_t*>(floats(args.selected));
  const uint64_t pieces = (keys + kTaskKeys - 1) / kTaskKeys;
  for (uint64_t first = 0; first < rows; first += slice) {
    const uint64_t slice_rows = std::min(slice, rows - first);
    const auto visible = [&](uint64_t row) { return keys - rows + row + 1; };
    context.pool.run(slice_rows * pieces, [&](uint64_t task, uint32_t) {
      const uint64_t at = task / pieces, begin = task % pieces * kTaskKeys;
      const uint64_t end = std::min(begin + kTaskKeys, visible(first + at));
      if (begin < end) CHORUS_SIMD(score_keys, target)(args, first + at, begin, end, scores + at * keys);
    });
    context.pool.run(slice_rows, [&](uint64_t at, uint32_t worker) {
      const uint64_t count = visible(first + at), list = std::max<uint64_t>(args.horizon, count);
      choose(scores + at * keys, count, args.top_k, work + worker * longest, list, selected + (first + at) * words, words);
    });
  }
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
