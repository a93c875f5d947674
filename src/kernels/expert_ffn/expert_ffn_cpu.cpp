// Experts on routed rows, computed from their records as they lie in the bank: rows of weights are read front to back, four at a time, and
// each vector of weights is used by several rows of x while it is in a register.
//
// Order of the sum of one output, on every path: lane l of one vector adds the products of the columns l, l + lanes, l + 2 lanes ... in
// order (fused where the target has FMA), then the lanes are added (add_lanes). It depends on the row's length alone: a route gets the same
// bits alone or beside any others, in any slot, on any number of threads.
#include "kernels/expert_ffn/expert_ffn_cpu.h"

#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/expert_ffn/expert_ffn_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_EXPERT_FFN_CPU_ONCE
#define CHORUS_EXPERT_FFN_CPU_ONCE
namespace chorus::kernels {

constexpr uint64_t kWeightRows = 4;       // read side by side
constexpr uint64_t kWeightRowsOfOne = 8;  // the same for a single row of x
constexpr uint64_t kDepthBlock = 1024;    // columns that stay in the nearest cache while tiles of x pass by; a multiple of all lanes
constexpr uint64_t kLanesMost = 16;       // of every target
constexpr uint64_t kRoutesAtOnce = 240;   // of one expert
#ifdef CHORUS_FEW_SIMD_TARGETS
constexpr bool kAskAhead = false;  // sanitizers do not look at it, and it doubles what they compile
#else
constexpr bool kAskAhead = true;
#endif

// sums[i][column + r] = dot(row r of the weights, x[i]).
struct DotTask {
  const std::byte* weights;
  uint64_t row_bytes;
  DType dtype;
  uint64_t depth;  // a multiple of 8; x is filled up with zeros
  uint64_t row_count;
  const float* const* x;
  uint64_t x_count;  // at most kRoutesAtOnce
  float* const* sums;
  uint64_t column;
  float* partial;         // [max(2, x_count)][kWeightRows][kLanesMost]
  const std::byte* then;  // what this thread will probably read after these rows; only asked for ahead of its use
};

struct ActivationTask {
  const float *gate, *up;
  const float *gate_bias, *up_bias;  // null: none
  uint64_t count;
  const compute::ExpertFfnArgs* args;
  float* out;
};

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

static_assert(kLanes <= kLanesMost && kDepthBlock % kLanes == 0);

// Rows of x beside four rows of weights: AVX-512 and NEON have 32 vector registers, the others 16.
#if HWY_TARGET == HWY_NEON || HWY_TARGET <= HWY_AVX3
constexpr uint64_t kTileRows = 6;
#else
constexpr uint64_t kTileRows = 3;
#endif

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
using Halves = hn::Rebind<uint16_t, Floats>;
using HalfVector = hn::Vec<Halves>;

HWY_INLINE Vector widen(Floats d, HalfVector bits, const Bf16*) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::Rebind<uint32_t, Floats>(), bits)));
}
HWY_INLINE Vector widen(Floats d, HalfVector bits, const F16*) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
  HWY_ALIGN uint16_t halves[kLanes];
  HWY_ALIGN float values[kLanes];
  hn::Store(bits, Halves(), halves);
  for (uint64_t i = 0; i < kLanes; ++i) values[i] = f16_to_float(halves[i]);
  return hn::Load(d, values);
#else
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, Floats>(), bits));
#endif
}

HWY_INLINE Vector load_weights(Floats d, const float* from) { return hn::LoadU(d, from); }
HWY_INLINE Vector load_weights(Floats d, const float* from, uint64_t count) { return load_part(d, from, count); }
template <typename Half>
HWY_INLINE Vector load_weights(Floats d, const Half* from) {
  return widen(d, hn::LoadU(Halves(), &from->bits), from);
}
template <typename Half>
HWY_INLINE Vector load_weights(Floats d, const Half* from, uint64_t count) {
  HWY_ALIGN uint16_t halves[kLanes] = {};
  std::memcpy(halves, from, count * sizeof(uint16_t));
  return widen(d, hn::Load(Halves(), halves), from);
}

template <uint64_t kRows, uint64_t kWide, typename LoadWeights, typename LoadX>
HWY_INLINE void add_products(const LoadWeights& load_row, const LoadX& load_x, Vector (&sum)[kRows][kWide]) {
  Vector x[kRows];
#pragma GCC unroll 8
  for (uint64_t i = 0; i < kRows; ++i) x[i] = load_x(i);
#pragma GCC unroll 8
  for (uint64_t r = 0; r < kWide; ++r) {
    const Vector w = load_row(r);
#pragma GCC unroll 8
    for (uint64_t i = 0; i < kRows; ++i) sum[i][r] = hn::MulAdd(x[i], w, sum[i][r]);
  }
}

// Weights are asked for this far ahead of their use, front to back: several rows at once are too many streams for the processor to foresee.
constexpr uint64_t kBytesAhead = 32 << 10;

// What to ask for while the rows from `row` on are read: what this thread reads kBytesAhead later, in this task or in the next one. Only a
// hint, so a number rather than a pointer.
HWY_INLINE uintptr_t ahead_of(const DotTask& task, uint64_t row) {
  const uint64_t at = row * task.row_bytes + kBytesAhead, bytes = task.row_count * task.row_bytes;
  if (at >= bytes && task.then) return reinterpret_cast<uintptr_t>(task.then) + (at - bytes);
  return reinterpret_cast<uintptr_t>(task.weights) + at;
}

// partial[i][r][lane] (=|+=) products of the columns [begin, end). kAsk: this tile is the first to read its weights; `ahead` is of its row.
template <uint64_t kRows, uint64_t kWide, bool kAsk, typename Stored>
HWY_INLINE void dot_tile(const Stored* const* weights, const float* const* x, uint64_t begin, uint64_t end,
                         [[maybe_unused]] uintptr_t ahead, float* HWY_RESTRICT partial) {
  const Floats d;
  Vector sum[kRows][kWide];
#pragma GCC unroll 8
  for (uint64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (uint64_t r = 0; r < kWide; ++r) {
      sum[i][r] = begin == 0 ? hn::Zero(d) : hn::Load(d, partial + (i * kWide + r) * kLanesMost);
    }
  }
  uint64_t k = begin;
  for (; k + kLanes <= end; k += kLanes) {
    if constexpr (kAsk) {
      const uintptr_t first = ahead + kWide * k * sizeof(Stored);
#pragma GCC unroll 8
      for (uint64_t line = 0; line < kWide * kLanes * sizeof(Stored); line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(first + line), 0, 2);
      }
    }
    add_products<kRows, kWide>([&](uint64_t r) HWY_ATTR { return load_weights(d, weights[r] + k); },
                               [&](uint64_t i) HWY_ATTR { return hn::LoadU(d, x[i] + k); }, sum);
  }
  if constexpr (kLanes > 8) {  // rows are whole eights
    if (k < end) {
      add_products<kRows, kWide>([&](uint64_t r) HWY_ATTR { return load_weights(d, weights[r] + k, end - k); },
                                 [&](uint64_t i) HWY_ATTR { return load_part(d, x[i] + k, end - k); }, sum);
    }
  }
#pragma GCC unroll 8
  for (uint64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (uint64_t r = 0; r < kWide; ++r) hn::Store(sum[i][r], d, partial + (i * kWide + r) * kLanesMost);
  }
}

// sums[j] = the lanes of the j-th vector: upper half onto lower half until four lanes are left; then 0 + 2, 1 + 3, and those two.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void add_lanes([[maybe_unused]] D d, V v0, V v1, V v2, V v3, float* HWY_RESTRICT sums) {
#if HWY_TARGET == HWY_SCALAR
  const V all[] = {v0, v1, v2, v3};
  for (uint64_t j = 0; j < 4; ++j) sums[j] = hn::GetLane(all[j]);
#else
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    const auto fold = [&](V v) HWY_ATTR { return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)); };
    add_lanes(half, fold(v0), fold(v1), fold(v2), fold(v3), sums);
  } else {
    const V pair_0 = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
    const V pair_1 = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
    hn::StoreU(hn::Add(hn::ConcatLowerLower(d, pair_1, pair_0), hn::ConcatUpperUpper(d, pair_1, pair_0)), d, sums);
  }
#endif
}

// The next tile of at most `left` rows of x; returns how many it took.
template <bool kAsk, typename Stored>
HWY_NOINLINE uint64_t next_tile(uint64_t left, const Stored* const* weights, const float* const* x, uint64_t begin, uint64_t end,
                                uintptr_t ahead, float* partial) {
#if HWY_TARGET == HWY_NEON || HWY_TARGET <= HWY_AVX3
  if (left >= 6) return dot_tile<6, kWeightRows, kAsk>(weights, x, begin, end, ahead, partial), 6;
  if (left >= 4) return dot_tile<4, kWeightRows, kAsk>(weights, x, begin, end, ahead, partial), 4;
#endif
  if (left >= 3) return dot_tile<3, kWeightRows, kAsk>(weights, x, begin, end, ahead, partial), 3;
  if (left == 2) return dot_tile<2, kWeightRows, kAsk>(weights, x, begin, end, ahead, partial), 2;
  return dot_tile<1, kWeightRows, kAsk>(weights, x, begin, end, ahead, partial), 1;
}

// Rows [row, row + kWide) of the task, the last one again where there are fewer.
template <uint64_t kWide, typename Stored>
HWY_INLINE void find_rows(const DotTask& task, uint64_t row, const Stored* (&weights)[kWide]) {
  for (uint64_t r = 0; r < kWide; ++r) {
    const uint64_t at = row + r < task.row_count ? row + r : task.row_count - 1;
    weights[r] = reinterpret_cast<const Stored*>(task.weights + at * task.row_bytes);
  }
}

// Adds up the lanes of four rows and writes those that exist.
HWY_INLINE void finish_rows(const DotTask& task, uint64_t row, const float* HWY_RESTRICT partial, float* HWY_RESTRICT target) {
  const Floats d;
  const auto vector = [&](uint64_t r) HWY_ATTR { return hn::Load(d, partial + r * kLanesMost); };
  float sums[4];
  add_lanes(d, vector(0), vector(1), vector(2), vector(3), sums);
  for (uint64_t r = 0; r < 4 && row + r < task.row_count; ++r) target[task.column + row + r] = sums[r];
}

// One row of x: bound by reading the weights.
template <typename Stored>
void dot_rows_of_one(const DotTask& task) {
  constexpr uint64_t kWide = kWeightRowsOfOne;
  for (uint64_t row = 0; row < task.row_count; row += kWide) {
    const Stored* weights[kWide];
    find_rows<kWide>(task, row, weights);
    dot_tile<1, kWide, kAskAhead>(weights, task.x, 0, task.depth, ahead_of(task, row), task.partial);
    for (uint64_t r = 0; r < kWide; r += 4) finish_rows(task, row + r, task.partial + r * kLanesMost, task.sums[0]);
  }
}

template <typename Stored>
void dot_rows_of(const DotTask& task) {
  if (task.x_count == 1) return dot_rows_of_one<Stored>(task);
  const uint64_t block = task.x_count <= kTileRows ? task.depth : kDepthBlock;
  for (uint64_t row = 0; row < task.row_count; row += kWeightRows) {
    const Stored* weights[kWeightRows];
    find_rows<kWeightRows>(task, row, weights);
    for (uint64_t begin = 0; begin < task.depth; begin += block) {
      const uint64_t end = begin + block < task.depth ? begin + block : task.depth;
      uint64_t done = next_tile<kAskAhead>(task.x_count, weights, task.x, begin, end, ahead_of(task, row), task.partial);
      while (done < task.x_count) {
        done +=
            next_tile<false>(task.x_count - done, weights, task.x + done, begin, end, 0, task.partial + done * kWeightRows * kLanesMost);
      }
    }
    for (uint64_t i = 0; i < task.x_count; ++i) finish_rows(task, row, task.partial + i * kWeightRows * kLanesMost, task.sums[i]);
  }
}

void dot_rows(const DotTask& task) {
  switch (task.dtype) {
    case DType::f32:
      return dot_rows_of<float>(task);
    case DType::f16:
      return dot_rows_of<F16>(task);
    case DType::bf16:
      return dot_rows_of<Bf16>(task);
  }
}

// Comparisons with a NaN are false: it stays.
HWY_INLINE Vector at_most(Vector value, Vector limit) { return hn::IfThenElse(hn::Gt(value, limit), limit, value); }
HWY_INLINE Vector at_least(Vector value, Vector limit) { return hn::IfThenElse(hn::Lt(value, limit), limit, value); }

void activate(const ActivationTask& task) {
  const Floats d;
  const bool clamped = task.args->activation == compute::ExpertActivation::clamped_swiglu;
  const Vector limit = hn::Set(d, task.args->limit), alpha = hn::Set(d, task.args->alpha), one = hn::Set(d, 1.0f);
  for_vectors(task.count, [&](const auto& load, const auto& store) HWY_ATTR {
    Vector gate = load(task.gate), up = load(task.up);
    if (task.gate_bias) {
      gate = hn::Add(gate, load(task.gate_bias));
      up = hn::Add(up, load(task.up_bias));
    }
    if (!clamped) return store(hn::Mul(silu(d, gate), up), task.out);
    gate = at_most(gate, limit);
    up = at_least(at_most(up, limit), hn::Neg(limit));
    store(hn::Mul(hn::Mul(gate, sigmoid(d, hn::Mul(alpha, gate))), hn::Add(up, one)), task.out);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {
namespace {

HWY_EXPORT(dot_rows);
HWY_EXPORT(activate);

constexpr uint64_t kTaskBytes = 512 << 10;         // of weights: some microseconds
constexpr uint64_t kMiddleBytesMax = 64ull << 20;  // between the two products

// Weight rows of one task, a multiple of kWeightRowsOfOne.
uint64_t rows_per_task(uint64_t row_bytes) { return std::max<uint64_t>(1, kTaskBytes / (row_bytes * kWeightRows)) * kWeightRows; }

// Routes of one expert, as a run of Work::routes.
struct Part {
  uint32_t slot;
  uint64_t first, count;
};

// A chunk of rows. The arrays run over the routes that have an expert, sorted by slot.
struct Work {
  const compute::ExpertFfnArgs& args;
  const CpuExpertBank& bank;
  int64_t target;
  std::vector<uint32_t> routes;
  std::vector<Part> parts;
  std::vector<const float*> x;       // [hidden_padded]
  std::vector<const float*> middle;  // [inner_padded]
  std::vector<float*> out;
};

void sort_routes(Work& work, uint64_t first_route, uint64_t count) {
  const uint32_t* slots = indices(work.args.slots);
  for (uint64_t route = first_route; route < first_route + count; ++route) {
    if (slots[route] < work.bank.slots()) work.routes.push_back(static_cast<uint32_t>(route));
  }
  std::stable_sort(work.routes.begin(), work.routes.end(), [&](uint32_t a, uint32_t b) { return slots[a] < slots[b]; });
  for (uint64_t at = 0; at < work.routes.size(); ++at) {
    const uint32_t slot = slots[work.routes[at]];
    if (work.parts.empty() || work.parts.back().slot != slot || work.parts.back().count == kRoutesAtOnce) {
      work.parts.push_back({slot, at, 0});
    }
    ++work.parts.back().count;
  }
}

// Where the rows of x can be read in whole eights: in place, or copied with zeros behind.
Status find_inputs(CpuContext& context, Work& work, uint64_t first_row, uint64_t row_count) {
  const uint64_t hidden = work.args.x.cols, padded = work.bank.layout().hidden_padded;
  const Rows x(work.args.x);
  float* copy = nullptr;
  if (padded != hidden) {
    CHORUS_ASSIGN(copy, context.scratch.acquire_floats("expert_ffn input", row_count * padded));
    for (uint64_t row = 0; row < row_count; ++row) {
      std::memcpy(copy + row * padded, x.row(first_row + row), hidden * sizeof(float));
      std::fill_n(copy + row * padded + hidden, padded - hidden, 0.0f);
    }
  }
  for (const uint32_t route : work.routes) {
    const uint64_t row = route / work.args.top_k;
    work.x.push_back(copy ? copy + (row - first_row) * padded : x.row(row));
  }
  return {};
}

// Working memory of one thread in the first product.
struct GateUpScratch {
  float* sums;     // [2][kRoutesAtOnce][rows per task]
  float* partial;  // as DotTask
};
constexpr uint64_t kPartialFloats = kRoutesAtOnce * kWeightRows * kLanesMost;

// Weight rows [first, first + count) of one expert, for all routes of a part.
struct Piece {
  const Part* part;  // null: none
  uint64_t first, count;
};

// The rows of `piece` in the first product (its gate, or its up half) or in the second; null where there is no piece.
const std::byte* gate_up_rows(const Work& work, const Piece& piece, uint64_t half) {
  if (!piece.part) return nullptr;
  const uint64_t row_bytes = uint64_t{work.bank.layout().hidden_padded} * dtype_bytes(work.bank.shape().dtype);
  return work.bank.record(piece.part->slot) + (half * work.bank.shape().inner + piece.first) * row_bytes;
}
const std::byte* down_rows(const Work& work, const Piece& piece) {
  if (!piece.part) return nullptr;
  const uint64_t row_bytes = uint64_t{work.bank.layout().inner_padded} * dtype_bytes(work.bank.shape().dtype);
  return work.bank.record(piece.part->slot) + work.bank.layout().down_offset + piece.first * row_bytes;
}

// The middle rows' columns of `piece`; `then` is the piece this thread will probably take next.
void gate_up_task(const Work& work, const Piece& piece, const Piece& then, const GateUpScratch& scratch) {
  const compute::ExpertShape& shape = work.bank.shape();
  const compute::ExpertRecord& layout = work.bank.layout();
  const Part& part = *piece.part;
  float* sums[2][kRoutesAtOnce];
  for (uint64_t half = 0; half < 2; ++half) {
    for (uint64_t i = 0; i < part.count; ++i) sums[half][i] = scratch.sums + (half * part.count + i) * piece.count;
    const std::byte* follows = half == 0 ? gate_up_rows(work, piece, 1) : gate_up_rows(work, then, 0);
    CHORUS_SIMD(dot_rows, work.target)
    (DotTask{gate_up_rows(work, piece, half), uint64_t{layout.hidden_padded} * dtype_bytes(shape.dtype), shape.dtype, layout.hidden_padded,
             piece.count, work.x.data() + part.first, part.count, sums[half], 0, scratch.partial, follows});
  }
  const std::byte* record = work.bank.record(part.slot);
  const float* bias = shape.biases ? reinterpret_cast<const float*>(record + layout.gate_up_bias_offset) + piece.first : nullptr;
  for (uint64_t i = 0; i < part.count; ++i) {
    float* middle = const_cast<float*>(work.middle[part.first + i]);
    CHORUS_SIMD(activate, work.target)
    (ActivationTask{sums[0][i], sums[1][i], bias, bias ? bias + shape.inner : nullptr, piece.count, &work.args, middle + piece.first});
  }
}

void down_task(const Work& work, const Piece& piece, const Piece& then, float* partial) {
  const compute::ExpertShape& shape = work.bank.shape();
  const compute::ExpertRecord& layout = work.bank.layout();
  const Part& part = *piece.part;
  CHORUS_SIMD(dot_rows, work.target)
  (DotTask{down_rows(work, piece), uint64_t{layout.inner_padded} * dtype_bytes(shape.dtype), shape.dtype, layout.inner_padded, piece.count,
           work.middle.data() + part.first, part.count, work.out.data() + part.first, piece.first, partial, down_rows(work, then)});
  if (!shape.biases) return;
  const float* bias = reinterpret_cast<const float*>(work.bank.record(part.slot) + layout.down_bias_offset);
  for (uint64_t i = 0; i < part.count; ++i) {
    float* out = work.out[part.first + i];
    for (uint64_t n = piece.first; n < piece.first + piece.count; ++n) out[n] += bias[n];
  }
}

// Calls task(piece, piece that this thread will probably take next, worker) for pieces of `rows_per_piece` weight rows of every part.
template <typename Task>
void for_pieces(ThreadPool& pool, const Work& work, uint64_t rows, uint64_t rows_per_piece, const Task& task) {
  const uint64_t pieces = (rows + rows_per_piece - 1) / rows_per_piece, total = work.parts.size() * pieces;
  const auto piece_at = [&](uint64_t index) {
    const uint64_t first = index % pieces * rows_per_piece;
    return Piece{index < total ? &work.parts[index / pieces] : nullptr, first, std::min(rows_per_piece, rows - first)};
  };
  pool.run(total, [&](uint64_t index, uint32_t worker) { task(piece_at(index), piece_at(index + pool.threads()), worker); });
}

Status run_rows(CpuContext& context, Work& work, uint64_t first_row, uint64_t row_count) {
  const compute::ExpertShape& shape = work.bank.shape();
  const compute::ExpertRecord& layout = work.bank.layout();
  sort_routes(work, first_row * work.args.top_k, row_count * work.args.top_k);
  if (work.routes.empty()) return {};
  CHORUS_TRY(find_inputs(context, work, first_row, row_count));
  CHORUS_ASSIGN(float* middle, context.scratch.acquire_floats("expert_ffn middle", work.routes.size() * layout.inner_padded));
  const MutableRows out(work.args.out);
  for (const uint32_t route : work.routes) {
    std::fill(middle + shape.inner, middle + layout.inner_padded, 0.0f);
    work.middle.push_back(middle);
    work.out.push_back(out.row(route));
    middle += layout.inner_padded;
  }
  const uint64_t element = dtype_bytes(shape.dtype);
  const uint64_t gate_rows = rows_per_task(2 * layout.hidden_padded * element);
  const uint64_t worker_floats = kPartialFloats + 2 * kRoutesAtOnce * gate_rows;
  CHORUS_ASSIGN(float* scratch, context.scratch.acquire_floats("expert_ffn sums", worker_floats * context.pool.threads()));
  for_pieces(context.pool, work, shape.inner, gate_rows, [&](const Piece& piece, const Piece& then, uint32_t worker) {
    float* own = scratch + worker * worker_floats;
    gate_up_task(work, piece, then, {own + kPartialFloats, own});
  });
  const uint64_t rows_of_down = rows_per_task(layout.inner_padded * element);
  for_pieces(context.pool, work, shape.hidden, rows_of_down, [&](const Piece& piece, const Piece& then, uint32_t worker) {
    down_task(work, piece, then, scratch + worker * worker_floats);
  });
  return {};
}

}  // namespace

Status expert_ffn_cpu(CpuContext& context, const compute::ExpertFfnArgs& args) {
  const CpuExpertBank& bank = *static_cast<const CpuExpertBank*>(args.bank);
  const int64_t target = simd_target(context.forced_variant("expert_ffn"));
  const uint64_t row_bytes = uint64_t{args.top_k} * bank.layout().inner_padded * sizeof(float);
  const uint64_t rows_at_once = std::max<uint64_t>(1, kMiddleBytesMax / row_bytes);
  for (uint64_t first = 0; first < args.x.rows; first += rows_at_once) {
    Work work{args, bank, target, {}, {}, {}, {}, {}};
    CHORUS_TRY(run_rows(context, work, first, std::min<uint64_t>(rows_at_once, args.x.rows - first)));
  }
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
