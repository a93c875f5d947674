// Weights are kept as integers (units of 2^-40 of the largest), so that a sum does not depend on its order. Each of top_k, top_p and the
// draw asks for the first token, by falling logit and then by rising index, at which a running sum reaches a target: found digit by digit
// of the pair (logit, index), without sorting.
#include "kernels/sample/sample_cpu.h"

#include <array>
#include <bit>
#include <span>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample/sample_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// weights = e^((x - largest) / temperature).
void exponentials(const float* x, float largest, float temperature, uint64_t cols, float* weights) {
  const Floats d;
  const Vector top = hn::Set(d, largest), divisor = hn::Set(d, temperature);
  for_vectors(cols, [&](const auto& load, const auto& store)
                        HWY_ATTR { store(exp_of_nonpositive(d, hn::Div(hn::Sub(load(x), top), divisor)), weights); });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {
namespace {

HWY_EXPORT(exponentials);

using compute::SampleRow;

constexpr double kFullWeight = 0x1p40;

// First word of Philox 4x32-10.
uint32_t draw(const SampleRow& row) {
  std::array<uint32_t, 4> counter = {row.step, 0, 0, 0};
  uint32_t key_0 = row.seed_low, key_1 = row.seed_high;
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter[0], second = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key_0, static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key_1, static_cast<uint32_t>(first)};
    key_0 += 0x9E3779B9u;
    key_1 += 0xBB67AE85u;
  }
  return counter[0];
}

// Larger for what comes earlier: by falling logit (both zeros alike), then by rising index.
uint64_t place_of(float logit, uint32_t index) {
  uint32_t bits = std::bit_cast<uint32_t>(logit);
  if ((bits << 1) == 0) bits = 0;
  const uint32_t key = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{key} << 32 | (UINT32_MAX - index);
}

// floor(sum * fraction / 2^32).
uint64_t part_of(uint64_t sum, uint32_t fraction) { return (sum >> 32) * fraction + ((sum & UINT32_MAX) * fraction >> 32); }

class RowSampler {
 public:
  // tokens and rest: room for one index a column each.
  RowSampler(const float* logits, const float* weights, float largest, std::span<uint32_t> tokens, std::span<uint32_t> rest)
      : logits_(logits), weights_(weights), largest_(largest), tokens_(tokens), rest_(rest) {
    for (uint32_t i = 0; i < tokens.size(); ++i) tokens_[i] = i;
  }

  uint32_t run(const SampleRow& row) {
    if (row.top_k > 0 && row.top_k < tokens_.size()) keep_until(select(row.top_k, [](uint32_t) { return uint64_t{1}; }));
    const auto weight = [this](uint32_t token) { return weight_of(token); };
    if (row.top_p < 1) {
      const uint32_t fraction = row.top_p > 0 ? static_cast<uint32_t>(static_cast<double>(row.top_p) * 0x1p32) : 0;
      const uint64_t total = total_weight();
      const uint64_t below = part_of(total, fraction);
      // ceil, and at least 1
      keep_until(select(std::max<uint64_t>(1, below + (static_cast<uint32_t>(total * fraction) != 0 ? 1 : 0)), weight));
    }
    keep([&](uint32_t token) { return logits_[token] == largest_ || !(weights_[token] < row.min_p); });
    return UINT32_MAX - static_cast<uint32_t>(select(part_of(total_weight(), draw(row)) + 1, weight));
  }

 private:
  uint64_t weight_of(uint32_t token) const {
    if (logits_[token] == largest_) return static_cast<uint64_t>(kFullWeight);
    const double weight = weights_[token];
    return weight > 0 ? static_cast<uint64_t>(std::min(weight, 1.0) * kFullWeight + 0.5) : 0;
  }

  uint64_t total_weight() const {
    uint64_t total = 0;
    for (const uint32_t token : tokens_) total += weight_of(token);
    return total;
  }

  template <typename Kept>
  void keep(const Kept& kept) {
    size_t count = 0;
    for (const uint32_t token : tokens_) {
      if (kept(token)) tokens_[count++] = token;
    }
    tokens_ = tokens_.first(count);
  }

  void keep_until(uint64_t place) {
    keep([&](uint32_t token) { return place_of(logits_[token], token) >= place; });
  }

  // The place of the first token at which the running sum of weights reaches `target`.
  template <typename Weight>
  uint64_t select(uint64_t target, const Weight& weight) {
    std::span<const uint32_t> left = tokens_;
    uint64_t place = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
      std::array<uint64_t, 256> sums{};
      for (const uint32_t token : left) sums[digit_of(token, shift)] += weight(token);
      uint32_t digit = 255;
      for (; digit > 0 && sums[digit] < target; --digit) target -= sums[digit];
      place |= uint64_t{digit} << shift;
      size_t count = 0;
      for (const uint32_t token : left) {
        if (digit_of(token, shift) == digit) rest_[count++] = token;
      }
      left = rest_.first(count);
      if (count == 1) return place_of(logits_[left[0]], left[0]);
    }
    return place;
  }

  uint32_t digit_of(uint32_t token, int shift) const { return static_cast<uint32_t>(place_of(logits_[token], token) >> shift) & 255u; }

  const float* logits_;
  const float* weights_;
  float largest_;
  std::span<uint32_t> tokens_, rest_;
};

// The largest logit, NaN when there is one.
float largest_of(const float* x, uint64_t cols) {
  float largest = x[0];
  for (uint64_t at = 0; at < cols; ++at) {
    if (x[at] != x[at]) return x[at];
    largest = x[at] > largest ? x[at] : largest;
  }
  return largest;
}

}  // namespace

Status sample_cpu(CpuContext& context, const compute::SampleArgs& args) {
  if (args.logits.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("sample"));
  const Rows logits(args.logits);
  const uint64_t cols = args.logits.cols;
  const SampleRow* rows = reinterpret_cast<const SampleRow*>(static_cast<const CpuBuffer*>(args.rows)->data());
  uint32_t* out = reinterpret_cast<uint32_t*>(static_cast<CpuBuffer*>(args.indices)->data());
  const uint64_t tasks = std::min<uint64_t>(args.logits.rows, context.pool.threads());
  CHORUS_ASSIGN(float* weights, context.scratch.acquire_floats("sample weights", tasks * cols));
  CHORUS_ASSIGN(std::byte * lists, context.scratch.acquire("sample lists", tasks * cols * 2 * sizeof(uint32_t)));
  context.pool.run(tasks, [&](uint64_t task, uint32_t) {
    float* row_weights = weights + task * cols;
    const std::span<uint32_t> list(reinterpret_cast<uint32_t*>(lists) + task * cols * 2, cols * 2);
    for (uint64_t row = task; row < args.logits.rows; row += tasks) {
      const float largest = largest_of(logits.row(row), cols);
      out[row] = UINT32_MAX;
      if (largest != largest) continue;
      CHORUS_SIMD(exponentials, target)(logits.row(row), largest, rows[row].temperature, cols, row_weights);
      out[row] = RowSampler(logits.row(row), row_weights, largest, list.first(cols), list.subspan(cols)).run(rows[row]);
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
