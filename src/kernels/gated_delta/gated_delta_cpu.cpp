// The gated delta rule in chunks of 64 tokens (the WY form of Yang et al. 2024, "Gated Delta Networks"), so that nearly all work is dense
// products. Per value head and chunk, with S0 the state before it, G_i the sum of log decays up to token i of the chunk, and
// D_ij = exp(G_i - G_j) for j <= i (never above 1):
//   (I + A) U = beta (V - exp(G) K S0),   A_ij = beta_i D_ij k_i.k_j  for j < i          forward substitution, row by row
//   out = exp(G) Q S0 + P U,              P_ij = D_ij q_i.k_j         for j <= i
//   S   = exp(G_last) S0 + sum_j k_j (exp(G_last - G_j) u_j)^T
// Everything is f32 but the log decays and their sums, which are f64: only differences of them are exponentiated.
// A task is a sequence, a value head and a range of its value columns (columns are independent, so the cut changes no bit).
// The token-by-token form is kept as the variant "recurrent": it reads like the formula, and the tests run both.
#include "kernels/gated_delta/gated_delta_cpu.h"

#include <cmath>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_delta/gated_delta_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_GATED_DELTA_CPU_ONCE
#define CHORUS_GATED_DELTA_CPU_ONCE
namespace chorus::kernels {

constexpr uint64_t kChunk = 64;
constexpr uint64_t kPadding = 16;           // floats; every target's vector divides it
constexpr double kSmallestLogDecay = -1e4;  // exp of it is zero in every format; keeps the sums finite
constexpr float kHidden = -1e30f;           // exp of it is zero

struct DeltaTask {
  const compute::GatedDeltaArgs* args;
  compute::SequenceSpan span;
  uint64_t head;
  uint64_t first_column;  // of the head's value columns
  uint64_t column_count;
  float* scratch;  // delta_scratch() floats
};

constexpr uint64_t padded(uint64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

// state | keys over queries | keys transposed | (keys over queries) x state | updates | A | P
constexpr uint64_t delta_scratch(uint64_t key_dim, uint64_t columns) {
  return key_dim * padded(columns) + 2 * kChunk * padded(key_dim) + key_dim * kChunk + 2 * kChunk * padded(columns) +
         kChunk * padded(columns) + 2 * kChunk * kChunk;
}

// The gates of one token: beta, and the log decay in [kSmallestLogDecay, 0] (NaN stays). A softplus of zero means no decay whatever the
// rate.
struct Gates {
  double log_decay;
  float beta;
};
inline Gates gates_of(double rate, double a_plus_bias, double b) {
  const double softplus = (a_plus_bias > 0 ? a_plus_bias : 0.0) + std::log1p(std::exp(-std::abs(a_plus_bias)));
  const double log_decay = softplus == 0 ? 0.0 : -rate * softplus;
  return {log_decay < kSmallestLogDecay ? kSmallestLogDecay : log_decay, static_cast<float>(1 / (1 + std::exp(-b)))};
}

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

struct Chunk {
  float* state;    // [key_dim][width]
  float* rows;     // [2 * kChunk][depth]: keys, then queries, normalised
  float* columns;  // [key_dim][kChunk]: the keys transposed
  float* reads;    // [2 * kChunk][width]: rows x state
  float* updates;  // [kChunk][width]
  float* a;        // [kChunk][kChunk]
  float* p;        // [kChunk][kChunk]
  uint64_t key_dim, depth, width;
  double log_sums[kChunk];
  float beta[kChunk];
};

// out = row * factor / sqrt(sum of squares + 1e-6), zeros up to the padded length.
void normalise(const float* row, uint64_t count, double factor, float* out) {
  const Floats d;
  const Vector scale = hn::Set(d, static_cast<float>(factor / std::sqrt(sum_of_squares(row, count) + 1e-6)));
  for_vectors(count, [&](const auto& load, const auto& store) HWY_ATTR { store(hn::Mul(load(row), scale), out); });
  for (uint64_t i = count; i < padded(count); ++i) out[i] = 0;
}

// Reads `count` tokens from `first` of the whole matrix: normalised keys and queries, gates.
void load_chunk(const DeltaTask& task, uint64_t first, uint64_t count, Chunk& chunk) {
  const compute::GatedDeltaArgs& args = *task.args;
  const Rows qkv(args.qkv), a(args.a), b(args.b);
  const uint64_t key_dim = chunk.key_dim, key_columns = args.shape.key_heads * key_dim;
  const uint64_t key_head = task.head / (args.shape.value_heads / args.shape.key_heads);
  const double rate = std::exp(static_cast<double>(floats(args.a_log)[task.head]));
  const double query_scale = 1 / std::sqrt(static_cast<double>(key_dim));
  double log_sum = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const float* query = qkv.row(first + i) + key_head * key_dim;
    normalise(query + key_columns, key_dim, 1, chunk.rows + i * chunk.depth);
    normalise(query, key_dim, query_scale, chunk.rows + (count + i) * chunk.depth);
    const Gates gates =
        gates_of(rate, static_cast<double>(a.row(first + i)[task.head]) + floats(args.dt_bias)[task.head], b.row(first + i)[task.head]);
    log_sum += gates.log_decay;
    chunk.log_sums[i] = log_sum;
    chunk.beta[i] = gates.beta;
  }
  for (uint64_t k = 0; k < key_dim; ++k) {
    float* line = chunk.columns + k * kChunk;
    for (uint64_t i = 0; i < count; ++i) line[i] = chunk.rows[i * chunk.depth + k];
    for (uint64_t i = count; i < kChunk; ++i) line[i] = 0;
  }
}

// A and P: the products of keys and queries with keys, times the decays between them. Rows of A are negated, ready to be added.
void make_triangles(uint64_t count, Chunk& chunk) {
  const Floats d;
  std::memset(chunk.a, 0, count * kChunk * sizeof(float));
  std::memset(chunk.p, 0, count * kChunk * sizeof(float));
  multiply_add({chunk.rows, chunk.depth, chunk.columns, kChunk, chunk.a, kChunk, count, chunk.key_dim, kChunk});
  multiply_add({chunk.rows + count * chunk.depth, chunk.depth, chunk.columns, kChunk, chunk.p, kChunk, count, chunk.key_dim, kChunk});
  for (uint64_t i = 0; i < count; ++i) {
    HWY_ALIGN float decays[kChunk];
    for (uint64_t j = 0; j <= i; ++j) decays[j] = static_cast<float>(chunk.log_sums[i] - chunk.log_sums[j]);
    for (uint64_t j = i + 1; j < kChunk; ++j) decays[j] = kHidden;
    const Vector negative_beta = hn::Set(d, -chunk.beta[i]);
    float* a = chunk.a + i * kChunk;
    float* p = chunk.p + i * kChunk;
    for (uint64_t j = 0; j < kChunk; j += kLanes) {
      const Vector decay = exp_of_nonpositive(d, hn::Load(d, decays + j));
      hn::Store(hn::Mul(hn::Load(d, p + j), decay), d, p + j);
      hn::Store(hn::Mul(hn::Mul(hn::Load(d, a + j), decay), negative_beta), d, a + j);
    }
    a[i] = 0;
  }
}

// updates: beta (V - exp(G) K S0), then the forward substitution, each row from the finished rows above it.
void solve_updates(const DeltaTask& task, uint64_t first, uint64_t count, Chunk& chunk) {
  const compute::GatedDeltaArgs& args = *task.args;
  const Rows qkv(args.qkv);
  const uint64_t value_at = 2 * uint64_t{args.shape.key_heads} * args.shape.key_dim + task.head * args.shape.value_dim + task.first_column;
  const Floats d;
  for (uint64_t i = 0; i < count; ++i) {
    const float* value = qkv.row(first + i) + value_at;
    const float* read = chunk.reads + i * chunk.width;
    float* update = chunk.updates + i * chunk.width;
    const Vector decay = hn::Set(d, static_cast<float>(std::exp(chunk.log_sums[i]))), beta = hn::Set(d, chunk.beta[i]);
    for_vectors(task.column_count, [&](const auto& load, const auto& store)
                                       HWY_ATTR { store(hn::Mul(beta, hn::NegMulAdd(decay, load(read), load(value))), update); });
    for (uint64_t j = task.column_count; j < chunk.width; ++j) update[j] = 0;
    multiply_add({chunk.a + i * kChunk, kChunk, chunk.updates, chunk.width, update, chunk.width, 1, i, chunk.width});
  }
}

void write_outputs(const DeltaTask& task, uint64_t first, uint64_t count, Chunk& chunk) {
  const MutableRows out(task.args->out);
  const Floats d;
  float* reads = chunk.reads + count * chunk.width;  // Q S0
  for (uint64_t i = 0; i < count; ++i) {
    const Vector decay = hn::Set(d, static_cast<float>(std::exp(chunk.log_sums[i])));
    float* read = reads + i * chunk.width;
    for (uint64_t j = 0; j < chunk.width; j += kLanes) hn::Store(hn::Mul(hn::Load(d, read + j), decay), d, read + j);
  }
  multiply_add({chunk.p, kChunk, chunk.updates, chunk.width, reads, chunk.width, count, count, chunk.width, true});
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(out.row(first + i) + task.head * task.args->shape.value_dim + task.first_column, reads + i * chunk.width,
                task.column_count * sizeof(float));
  }
}

void advance_state(uint64_t count, Chunk& chunk) {
  const Floats d;
  const double last = chunk.log_sums[count - 1];
  for (uint64_t i = 0; i < count; ++i) {
    const Vector decay = hn::Set(d, static_cast<float>(std::exp(last - chunk.log_sums[i])));
    float* update = chunk.updates + i * chunk.width;
    for (uint64_t j = 0; j < chunk.width; j += kLanes) hn::Store(hn::Mul(hn::Load(d, update + j), decay), d, update + j);
  }
  const Vector decay = hn::Set(d, static_cast<float>(std::exp(last)));
  for (uint64_t at = 0; at < chunk.key_dim * chunk.width; at += kLanes) {
    hn::Store(hn::Mul(hn::Load(d, chunk.state + at), decay), d, chunk.state + at);
  }
  multiply_add({chunk.columns, kChunk, chunk.updates, chunk.width, chunk.state, chunk.width, chunk.key_dim, count, chunk.width});
}

void run_chunks(const DeltaTask& task) {
  const compute::GatedDeltaArgs& args = *task.args;
  Chunk chunk;
  chunk.key_dim = args.shape.key_dim;
  chunk.depth = padded(chunk.key_dim);
  chunk.width = padded(task.column_count);
  chunk.state = task.scratch;
  chunk.rows = chunk.state + chunk.key_dim * chunk.width;
  chunk.columns = chunk.rows + 2 * kChunk * chunk.depth;
  chunk.reads = chunk.columns + chunk.key_dim * kChunk;
  chunk.updates = chunk.reads + 2 * kChunk * chunk.width;
  chunk.a = chunk.updates + kChunk * chunk.width;
  chunk.p = chunk.a + kChunk * kChunk;
  const uint64_t value_dim = args.shape.value_dim;
  const uint64_t state_at = task.head * chunk.key_dim * value_dim + task.first_column;
  for (uint64_t k = 0; k < chunk.key_dim; ++k) {
    float* line = chunk.state + k * chunk.width;
    std::memcpy(line, floats(args.state_in) + state_at + k * value_dim, task.column_count * sizeof(float));
    std::memset(line + task.column_count, 0, (chunk.width - task.column_count) * sizeof(float));
  }
  for (uint64_t done = 0; done < task.span.length; done += kChunk) {
    const uint64_t first = task.span.start + done, count = task.span.length - done < kChunk ? task.span.length - done : kChunk;
    load_chunk(task, first, count, chunk);
    std::memset(chunk.reads, 0, 2 * count * chunk.width * sizeof(float));
    multiply_add({chunk.rows, chunk.depth, chunk.state, chunk.width, chunk.reads, chunk.width, 2 * count, chunk.key_dim, chunk.width});
    make_triangles(count, chunk);
    solve_updates(task, first, count, chunk);
    write_outputs(task, first, count, chunk);
    advance_state(count, chunk);
  }
  if (!args.state_out) return;
  for (uint64_t k = 0; k < chunk.key_dim; ++k) {
    std::memcpy(floats(args.state_out) + state_at + k * value_dim, chunk.state + k * chunk.width, task.column_count * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {
namespace {

HWY_EXPORT(run_chunks);

// The formula, token by token. Scratch: the state of one head, its update, and the normalised query and key.
void run_tokens(const DeltaTask& task) {
  const compute::GatedDeltaArgs& args = *task.args;
  const Rows qkv(args.qkv), a(args.a), b(args.b);
  const MutableRows out(args.out);
  const uint64_t key_dim = args.shape.key_dim, value_dim = args.shape.value_dim, key_columns = args.shape.key_heads * key_dim;
  const uint64_t key_head = task.head / (args.shape.value_heads / args.shape.key_heads);
  const double rate = std::exp(static_cast<double>(floats(args.a_log)[task.head]));
  float* state = task.scratch;
  float* update = state + key_dim * value_dim;
  float* query = update + value_dim;
  float* key = query + key_dim;
  const auto normalise = [key_dim](const float* row, double factor, float* target) {
    double squares = 1e-6;
    for (uint64_t k = 0; k < key_dim; ++k) squares += static_cast<double>(row[k]) * row[k];
    for (uint64_t k = 0; k < key_dim; ++k) target[k] = row[k] * static_cast<float>(factor / std::sqrt(squares));
  };
  std::copy_n(floats(args.state_in) + task.head * key_dim * value_dim, key_dim * value_dim, state);
  for (uint64_t row = task.span.start; row < uint64_t{task.span.start} + task.span.length; ++row) {
    normalise(qkv.row(row) + key_head * key_dim, 1 / std::sqrt(static_cast<double>(key_dim)), query);
    normalise(qkv.row(row) + key_columns + key_head * key_dim, 1, key);
    const float* value = qkv.row(row) + 2 * key_columns + task.head * value_dim;
    const Gates gates = gates_of(rate, static_cast<double>(a.row(row)[task.head]) + floats(args.dt_bias)[task.head], b.row(row)[task.head]);
    const float decay = static_cast<float>(std::exp(gates.log_decay));
    std::fill_n(update, value_dim, 0.0f);
    for (uint64_t k = 0; k < key_dim; ++k) {
      for (uint64_t j = 0; j < value_dim; ++j) update[j] += (state[k * value_dim + j] *= decay) * key[k];
    }
    for (uint64_t j = 0; j < value_dim; ++j) update[j] = (value[j] - update[j]) * gates.beta;
    float* target = out.row(row) + task.head * value_dim;
    std::fill_n(target, value_dim, 0.0f);
    for (uint64_t k = 0; k < key_dim; ++k) {
      for (uint64_t j = 0; j < value_dim; ++j) target[j] += (state[k * value_dim + j] += key[k] * update[j]) * query[k];
    }
  }
  if (args.state_out) std::copy_n(state, key_dim * value_dim, floats(args.state_out) + task.head * key_dim * value_dim);
}

}  // namespace

std::vector<std::string> gated_delta_cpu_variants() {
  std::vector<std::string> names = simd_targets();
  names.push_back("recurrent");
  return names;
}

Status gated_delta_cpu(CpuContext& context, const compute::GatedDeltaArgs& args) {
  const std::string_view variant = context.forced_variant("gated_delta");
  const bool recurrent = variant == "recurrent";
  const int64_t target = simd_target(variant);
  const uint64_t value_dim = args.shape.value_dim, heads = args.shape.value_heads;
  const uint64_t whole_tasks = args.sequences->spans.size() * heads;
  if (whole_tasks == 0) return {};
  // Fewer heads than threads: cut the columns too.
  uint64_t columns = value_dim;
  while (!recurrent && whole_tasks * (value_dim / columns) < context.pool.threads() && columns % (2 * kPadding) == 0) columns /= 2;
  const uint64_t parts = value_dim / columns;
  const uint64_t scratch_floats = delta_scratch(args.shape.key_dim, columns);  // also enough for the recurrent form
  CHORUS_ASSIGN(float* scratch, context.scratch.acquire_floats("gated_delta", scratch_floats * context.pool.threads()));
  context.pool.run(whole_tasks * parts, [&](uint64_t index, uint32_t worker) {
    const uint64_t whole = index / parts;
    const DeltaTask task{&args,   args.sequences->spans[whole / heads], whole % heads, index % parts * columns,
                         columns, scratch + worker * scratch_floats};
    if (recurrent) {
      run_tokens(task);
    } else {
      CHORUS_SIMD(run_chunks, target)(task);
    }
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
