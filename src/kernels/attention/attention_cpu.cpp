// Blocked softmax attention (running maximum and sum, as in Dao et al. 2022, "FlashAttention") on packed blocks.
//
// A task is one key head, one sequence and up to kTaskRows rows of (query row, query head of that key head). It walks the keys it may see
// in blocks of kKeys, counted from the first prefix key: keys are packed transposed [head_dim][kKeys], values [kKeys][head_dim], both
// padded to whole vectors, so that both products are dense. Keys that a row may not see get a weight of exactly zero, so a row's result
// does not depend on the rows beside it. The sum of weights is kept in f64.
#include "kernels/attention/attention_cpu.h"

#include <cmath>
#include <limits>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_ATTENTION_CPU_ONCE
#define CHORUS_ATTENTION_CPU_ONCE
namespace chorus::kernels {

constexpr uint64_t kKeys = 64;
constexpr uint64_t kTaskRows = 128;
constexpr uint64_t kPadding = 16;  // floats; every target's vector divides it

struct AttentionTask {
  const compute::AttentionArgs* args;
  compute::SequenceSpan span;
  uint64_t kv_head;
  uint64_t first_head;  // query heads
  uint64_t head_count;
  uint64_t first_query;  // within the sequence
  uint64_t query_count;
  float* scratch;  // attention_scratch(head_dim) floats
};

constexpr uint64_t padded(uint64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

// Queries, out, scores, keys, values, then maximum and sum of each row (the sum takes two floats).
constexpr uint64_t attention_scratch(uint64_t head_dim) {
  return 2 * kTaskRows * padded(head_dim) + kTaskRows * kKeys + 2 * kKeys * padded(head_dim) + 4 * kTaskRows;
}

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

// Keys and values of key positions [first, first + count) of this sequence: prefix rows, then own rows.
struct KeyRows {
  Rows prefix_k, prefix_v, own_k, own_v;
  uint64_t prefix_rows, own_start, offset;
  const float* key(uint64_t at) const { return (at < prefix_rows ? prefix_k.row(at) : own_k.row(own_start + at - prefix_rows)) + offset; }
  const float* value(uint64_t at) const { return (at < prefix_rows ? prefix_v.row(at) : own_v.row(own_start + at - prefix_rows)) + offset; }
};

// keys: [padded dim][kKeys], values: [kKeys][padded dim]; what is beyond count or dim is zero.
void pack_keys(const KeyRows& rows, uint64_t first, uint64_t count, uint64_t dim, float* keys, float* values) {
  const uint64_t width = padded(dim);
  for (uint64_t at = 0; at < kKeys; ++at) {
    float* value = values + at * width;
    if (at >= count) {
      for (uint64_t i = 0; i < dim; ++i) keys[i * kKeys + at] = 0;
      std::memset(value, 0, width * sizeof(float));
      continue;
    }
    const float* key = rows.key(first + at);
    for (uint64_t i = 0; i < dim; ++i) keys[i * kKeys + at] = key[i];
    std::memcpy(value, rows.value(first + at), dim * sizeof(float));
    std::memset(value + dim, 0, (width - dim) * sizeof(float));
  }
}

// One row of scores over a block: masks what lies beyond `visible`, turns scores into weights under the running maximum, returns the factor
// for what was gathered before.
float weigh_row(float* scores, uint64_t visible, float* maximum, double* sum) {
  const Floats d;
  const float hidden = -std::numeric_limits<float>::infinity();
  for (uint64_t at = visible; at < kKeys; ++at) scores[at] = hidden;
  Vector largest = hn::Set(d, *maximum);
  for (uint64_t at = 0; at < kKeys; at += kLanes) {
    const Vector score = hn::Load(d, scores + at);
    largest = hn::IfThenElse(hn::Or(hn::Gt(score, largest), hn::IsNaN(score)), score, largest);  // a NaN stays
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(largest, d, lanes);
  float top = lanes[0];
  for (uint64_t lane = 1; lane < kLanes; ++lane) top = lanes[lane] > top || std::isnan(lanes[lane]) ? lanes[lane] : top;
  const Vector shift = hn::Set(d, top);
  Vector total = hn::Zero(d);
  for (uint64_t at = 0; at < kKeys; at += kLanes) {
    const Vector weight = exp_of_nonpositive(d, hn::Sub(hn::Load(d, scores + at), shift));
    hn::Store(weight, d, scores + at);
    total = hn::Add(total, weight);
  }
  const float factor = *maximum == hidden ? 0.0f : std::exp(*maximum - top);
  *sum = *sum * factor + hn::GetLane(hn::SumOfLanes(d, total));
  *maximum = top;
  return factor;
}

void scale_row(float* row, uint64_t width, float factor) {
  const Floats d;
  const Vector by = hn::Set(d, factor);
  for (uint64_t at = 0; at < width; at += kLanes) hn::Store(hn::Mul(hn::Load(d, row + at), by), d, row + at);
}

// target = row / sum * sigmoid(gate)
void write_row(const float* row, double sum, const float* gate, uint64_t dim, float* target) {
  const Floats d;
  const Vector inverse = hn::Set(d, static_cast<float>(1 / sum));
  for_vectors(dim, [&](const auto& load, const auto& store)
                       HWY_ATTR { store(hn::Mul(hn::Mul(load(row), inverse), sigmoid(d, load(gate))), target); });
}

void attend(const AttentionTask& task) {
  const compute::AttentionArgs& args = *task.args;
  const uint64_t dim = args.shape.head_dim, width = padded(dim), heads = task.head_count;
  const uint64_t rows = task.query_count * heads;
  float* queries = task.scratch;
  float* gathered = queries + kTaskRows * width;
  float* scores = gathered + kTaskRows * width;
  float* keys = scores + kTaskRows * kKeys;
  float* values = keys + width * kKeys;
  double* sums = reinterpret_cast<double*>(values + kKeys * width);
  float* maxima = reinterpret_cast<float*>(sums + kTaskRows);
  const Rows q(args.q), q_gate(args.q_gate);
  const MutableRows out(args.out);
  const bool has_prefix = args.prefix_k.rows > 0;
  const KeyRows key_rows{Rows(has_prefix ? args.prefix_k : args.own_k),
                         Rows(has_prefix ? args.prefix_v : args.own_v),
                         Rows(args.own_k),
                         Rows(args.own_v),
                         args.prefix_k.rows,
                         task.span.start,
                         task.kv_head * dim};
  const auto query_row = [&](uint64_t row) { return uint64_t{task.span.start} + task.first_query + row / heads; };
  const auto head_of = [&](uint64_t row) { return task.first_head + row % heads; };
  for (uint64_t row = 0; row < rows; ++row) {
    const float* query = q.row(query_row(row)) + head_of(row) * dim;
    for (uint64_t i = 0; i < dim; ++i) queries[row * width + i] = query[i] * args.scale;
    sums[row] = 0;
    maxima[row] = -std::numeric_limits<float>::infinity();
  }
  std::memset(gathered, 0, rows * width * sizeof(float));
  const uint64_t key_count = key_rows.prefix_rows + task.first_query + task.query_count;
  for (uint64_t first = 0; first < key_count; first += kKeys) {
    pack_keys(key_rows, first, std::min(kKeys, key_count - first), dim, keys, values);
    std::memset(scores, 0, rows * kKeys * sizeof(float));
    multiply_add({queries, width, keys, kKeys, scores, kKeys, rows, dim, kKeys});
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t seen = key_rows.prefix_rows + task.first_query + row / heads + 1;
      if (seen <= first) {  // nothing of this block: leave the row as it is
        std::memset(scores + row * kKeys, 0, kKeys * sizeof(float));
        continue;
      }
      const float factor = weigh_row(scores + row * kKeys, std::min(kKeys, seen - first), maxima + row, sums + row);
      if (factor != 1.0f) scale_row(gathered + row * width, width, factor);
    }
    multiply_add({scores, kKeys, values, width, gathered, width, rows, kKeys, width});
  }
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t head = head_of(row);
    write_row(gathered + row * width, sums[row], q_gate.row(query_row(row)) + (2 * head + 1) * dim, dim,
              out.row(query_row(row)) + head * dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(attend);

Status attention_cpu(CpuContext& context, const compute::AttentionArgs& args) {
  if (args.q.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("attention"));
  const uint64_t group = args.shape.query_heads / args.shape.kv_heads;
  const uint64_t heads_per_task = std::min(group, kTaskRows);
  const uint64_t queries_per_task = kTaskRows / heads_per_task;
  const uint64_t scratch_floats = attention_scratch(args.shape.head_dim);
  CHORUS_ASSIGN(float* scratch, context.scratch.acquire_floats("attention", scratch_floats * context.pool.threads()));
  std::vector<AttentionTask> tasks;
  for (const compute::SequenceSpan& span : args.sequences->spans) {
    for (uint64_t first = 0; first < span.length; first += queries_per_task) {
      for (uint64_t head = 0, head_count; head < args.shape.query_heads; head += head_count) {
        const uint64_t kv_head = head / group;
        head_count = std::min(heads_per_task, (kv_head + 1) * group - head);
        tasks.push_back(
            {&args, span, kv_head, head, head_count, first, std::min<uint64_t>(queries_per_task, span.length - first), nullptr});
      }
    }
  }
  // The last tasks of a sequence see the most keys: they go first, so that no thread is left with a long one at the end.
  context.pool.run(tasks.size(), [&](uint64_t index, uint32_t worker) {
    AttentionTask task = tasks[tasks.size() - 1 - index];
    task.scratch = scratch + worker * scratch_floats;
    CHORUS_SIMD(attend, target)(task);
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
