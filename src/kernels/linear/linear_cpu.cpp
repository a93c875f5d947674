// out = x W^T on packed panels of 32 weight rows.
//
// Order of the sum of one output, on every path: products are added one after the other (fused where the target has FMA) inside blocks of
// kBlock, and the block sums are added in order; then bias, then the old content. It depends on K alone, so a row gets the same bits alone
// or in any batch, on any number of threads.
//
// Shape of the work: up to kChunkRows rows of x are packed into tiles [K][tile rows]; a task is one panel (or a part of the chunk's rows on
// one panel). Inside a task a block of the panel (32 KiB as f32) is used by all row tiles while it is in the nearest cache; 16-bit blocks
// are widened once for several tiles, or on the fly for a single tile, which reads the weights at memory speed.
#include "kernels/linear/linear_cpu.h"

#include <limits>

#include "base/half.h"
#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef CHORUS_LINEAR_CPU_ONCE
#define CHORUS_LINEAR_CPU_ONCE
namespace chorus::kernels {

constexpr uint64_t kWidth = CpuWeight::kPanelWidth;
constexpr uint64_t kBlock = 256;

// Part of one panel's product. Tiles of packed x: the tile that starts at row r lies at packed + r * cols, as [cols][tile rows].
struct LinearTask {
  const std::byte* panel;
  DType dtype;
  uint64_t cols;
  const float* packed;
  uint64_t first_row;  // a tile boundary
  uint64_t row_count;
  float* sums;     // [row_count][32]
  float* widened;  // [kBlock][32]
};

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

// Register tiles: AVX-512 and NEON have 32 vector registers, the others 16.
#if HWY_TARGET == HWY_NEON || HWY_TARGET <= HWY_AVX3
constexpr uint64_t kSumRegisters = 24;
#else
constexpr uint64_t kSumRegisters = 12;
#endif
constexpr uint64_t vectors_beside(uint64_t rows) {
  uint64_t vectors = kWidth / hn::MaxLanes(Floats());
  while (vectors > 1 && rows * vectors > kSumRegisters) vectors /= 2;
  return vectors;
}

HWY_INLINE Vector load_weights(Floats d, const float* from) { return hn::Load(d, from); }
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
HWY_INLINE Vector load_weights(Floats d, const Bf16* from) {
  const hn::Rebind<uint16_t, Floats> d16;
  const hn::Rebind<uint32_t, Floats> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::Load(d16, &from->bits))));
}
HWY_INLINE Vector load_weights(Floats d, const F16* from) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
  HWY_ALIGN float values[hn::MaxLanes(Floats())];
  for (size_t i = 0; i < hn::MaxLanes(d); ++i) values[i] = f16_to_float(from[i].bits);
  return hn::Load(d, values);
#else
  const hn::Rebind<hwy::float16_t, Floats> d16;
  return hn::PromoteTo(d, hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

// One k: sum[r][v] += x[r] * weights[v]. Holds the fewer of the two sides in registers.
template <uint64_t kRows, uint64_t kVectors, typename Stored>
HWY_INLINE void add_products(Floats d, const float* HWY_RESTRICT x, const Stored* HWY_RESTRICT weights, Vector (&sum)[kRows][kVectors]) {
  constexpr uint64_t kLanes = hn::MaxLanes(Floats());
  if constexpr (kRows < kVectors) {
    Vector values[kRows];
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) values[r] = hn::Set(d, x[r]);
#pragma GCC unroll 32
    for (uint64_t v = 0; v < kVectors; ++v) {
      const Vector w = load_weights(d, weights + v * kLanes);
#pragma GCC unroll 16
      for (uint64_t r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(values[r], w, sum[r][v]);
    }
  } else {
    Vector w[kVectors];
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) w[v] = load_weights(d, weights + v * kLanes);
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) {
      const Vector value = hn::Set(d, x[r]);
#pragma GCC unroll 16
      for (uint64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(value, w[v], sum[r][v]);
    }
  }
}

// sums[r][0..32) (=|+=) sum over `count` k of x[k][r] * weights[k][0..32).
template <uint64_t kRows, typename Stored>
HWY_NOINLINE void multiply_tile(const float* HWY_RESTRICT x, const Stored* HWY_RESTRICT weights, uint64_t count, bool add,
                                float* HWY_RESTRICT sums) {
  constexpr uint64_t kVectors = vectors_beside(kRows);
  const Floats d;
  constexpr uint64_t kLanes = hn::MaxLanes(Floats());
  for (uint64_t column = 0; column < kWidth; column += kVectors * kLanes) {
    Vector sum[kRows][kVectors];
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (uint64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
    }
    const float* HWY_RESTRICT row_values = x;
    const Stored* HWY_RESTRICT line = weights + column;
    for (uint64_t k = 0; k < count; ++k, row_values += kRows, line += kWidth) {
      add_products<kRows, kVectors>(d, row_values, line, sum);
    }
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (uint64_t v = 0; v < kVectors; ++v) {
        float* target = sums + r * kWidth + column + v * kLanes;
        hn::Store(add ? hn::Add(hn::Load(d, target), sum[r][v]) : sum[r][v], d, target);
      }
    }
  }
}

template <typename Stored>
void multiply_rows(uint64_t rows, const float* x, const Stored* weights, uint64_t count, bool add, float* sums) {
  switch (rows) {
#if HWY_TARGET <= HWY_AVX3
    case 12:
      return multiply_tile<12>(x, weights, count, add, sums);
    case 8:
      return multiply_tile<8>(x, weights, count, add, sums);
#else
    case 6:
      return multiply_tile<6>(x, weights, count, add, sums);
    case 3:
      return multiply_tile<3>(x, weights, count, add, sums);
#endif
    case 4:
      return multiply_tile<4>(x, weights, count, add, sums);
    case 2:
      return multiply_tile<2>(x, weights, count, add, sums);
    case 1:
      return multiply_tile<1>(x, weights, count, add, sums);
    default:  // next_tile_rows() gives no other count; if it ever did, NaN would not pass as an answer
      for (uint64_t i = 0; i < rows * kWidth; ++i) sums[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

// How a task's rows are cut into tiles: the rows of the next tile when `left` remain. Every 24th row begins a tile, but for f32 in the last
// 24 rows of a task. Up to six rows of f32 are cut into threes, whose tile reads whole lines of a panel, front to back, which matters while
// the weights come from memory; a line of 16-bit weights is short enough for a tile that reads its halves in turn.
uint64_t next_tile_rows(uint64_t left, DType dtype) {
#if HWY_TARGET <= HWY_AVX3
  static_cast<void>(dtype);
  return left >= 12 ? 12 : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
#else
  if (dtype == DType::f32) return left > 6 ? 6 : left >= 3 ? 3 : left;
  return left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
#endif
}

// Packs rows [first, first + count) of x into the tile that starts at `packed`.
void pack_tile(const float* x, uint64_t stride, uint64_t rows, uint64_t cols, float* packed) {
  constexpr uint64_t kStep = 64;  // keeps the target lines in the nearest cache
  for (uint64_t begin = 0; begin < cols; begin += kStep) {
    const uint64_t end = begin + kStep < cols ? begin + kStep : cols;
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t k = begin; k < end; ++k) packed[k * rows + r] = x[r * stride + k];
    }
  }
}

template <typename Stored>
void multiply_block(const LinearTask& task, const Stored* weights, uint64_t begin, uint64_t count, float* sums) {
  for (uint64_t done = 0; done < task.row_count;) {
    const uint64_t rows = next_tile_rows(task.row_count - done, task.dtype);
    const float* tile = task.packed + (task.first_row + done) * task.cols + begin * rows;
    multiply_rows(rows, tile, weights, count, begin > 0, sums + done * kWidth);
    done += rows;
  }
}

template <typename Stored>
void multiply_panel(const LinearTask& task) {
  const Stored* panel = reinterpret_cast<const Stored*>(task.panel);
  const bool one_tile = task.row_count == next_tile_rows(task.row_count, task.dtype);
  for (uint64_t begin = 0; begin < task.cols; begin += kBlock) {
    const uint64_t count = begin + kBlock < task.cols ? kBlock : task.cols - begin;
    const Stored* block = panel + begin * kWidth;
    if (sizeof(Stored) == sizeof(float) || one_tile) {
      multiply_block(task, block, begin, count, task.sums);
      continue;
    }
    const Floats d;
    for (uint64_t i = 0; i < count * kWidth; i += hn::MaxLanes(d)) hn::Store(load_weights(d, block + i), d, task.widened + i);
    multiply_block(task, task.widened, begin, count, task.sums);
  }
}

void run_task(const LinearTask& task) {
  switch (task.dtype) {
    case DType::f32:
      return multiply_panel<float>(task);
    case DType::f16:
      return multiply_panel<F16>(task);
    case DType::bf16:
      return multiply_panel<Bf16>(task);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {
namespace {

HWY_EXPORT(run_task);
HWY_EXPORT(pack_tile);
HWY_EXPORT(next_tile_rows);

constexpr uint64_t kChunkRows = 480;    // of x packed at a time; a multiple of every tile's rows
constexpr uint64_t kTasksWanted = 128;  // a chunk is cut further when the panels alone give fewer
constexpr uint64_t kTaskRowsStep = 24;  // a multiple of every tile's rows

struct Columns {
  uint64_t first = 0, last = 0;  // of the result
};

// Adds bias and old content, and writes `columns`, which lie in the panel that the sums are of.
void finish(const PanelProduct& product, const float* sums, uint64_t first_row, uint64_t row_count, Columns columns) {
  for (uint64_t row = 0; row < row_count; ++row) {
    float* target = product.out.row(first_row + row);
    const float* sum = sums + row * kWidth;
    for (uint64_t n = columns.first; n < columns.last; ++n) {
      const float value = product.bias ? sum[n % kWidth] + product.bias[n] : sum[n % kWidth];
      target[n] = product.add ? target[n] + value : value;
    }
  }
}

struct Chunk {
  uint64_t first_row;
  uint64_t row_count;
  uint64_t part_rows;  // rows of one task, a multiple of kTaskRowsStep
};

// Packs the chunk's rows of every head; a head's tiles lie together.
void pack_chunk(CpuContext& context, int64_t target, const PanelProduct& product, const Chunk& chunk, float* packed) {
  const uint64_t cols = product.weight.cols();
  const uint64_t steps = (chunk.row_count + kTaskRowsStep - 1) / kTaskRowsStep;
  context.pool.run(product.heads * steps, [&](uint64_t task, uint32_t) {
    const uint64_t head = task / steps, first = task % steps * kTaskRowsStep;
    const uint64_t end = std::min(chunk.row_count, first + kTaskRowsStep);
    const uint64_t part_end = std::min(chunk.row_count, (first / chunk.part_rows + 1) * chunk.part_rows);
    for (uint64_t row = first; row < end;) {
      const uint64_t rows = CHORUS_SIMD(next_tile_rows, target)(part_end - row, product.weight.dtype());
      CHORUS_SIMD(pack_tile, target)
      (product.x.row(chunk.first_row + row) + head * product.x_head_stride, product.x.stride, rows, cols,
       packed + (head * chunk.row_count + row) * cols);
      row += rows;
    }
  });
}

// The tasks of one chunk: every panel that holds columns of a head, for every part of the chunk's rows. A panel in which two heads meet is
// two tasks, one for each.
void multiply_chunk(CpuContext& context, int64_t target, const PanelProduct& product, const Chunk& chunk, const float* packed, float* work,
                    uint64_t worker_floats) {
  const uint64_t head_columns = product.weight.rows() / product.heads;
  const uint64_t head_panels = product.panels_of_a_head();
  const uint64_t parts = (chunk.row_count + chunk.part_rows - 1) / chunk.part_rows;
  context.pool.run(product.heads * head_panels * parts, [&](uint64_t index, uint32_t worker) {
    const uint64_t head = index / (head_panels * parts), part_first = index % parts * chunk.part_rows;
    const uint64_t begin = head * head_columns, end = begin + head_columns;
    const uint64_t panel = begin / kWidth + index / parts % head_panels;
    const Columns columns{std::max(begin, panel * kWidth), std::min(end, (panel + 1) * kWidth)};
    if (columns.first >= columns.last) return;
    LinearTask task;
    task.panel = product.weight.panel(panel);
    task.dtype = product.weight.dtype();
    task.cols = product.weight.cols();
    task.packed = packed + head * chunk.row_count * task.cols;
    task.first_row = part_first;
    task.row_count = std::min(chunk.part_rows, chunk.row_count - part_first);
    task.widened = work + worker * worker_floats;
    task.sums = task.widened + kBlock * kWidth;
    CHORUS_SIMD(run_task, target)(task);
    finish(product, task.sums, chunk.first_row + part_first, task.row_count, columns);
  });
}

}  // namespace

uint64_t PanelProduct::panels_of_a_head() const {
  const uint64_t columns = weight.rows() / heads;
  return heads == 1 || columns % kWidth == 0 ? (columns + kWidth - 1) / kWidth : columns / kWidth + 2;
}

Status multiply_panels(CpuContext& context, std::string_view variant, const PanelProduct& product) {
  if (product.row_count == 0) return {};
  const int64_t target = simd_target(variant);
  const uint64_t cols = product.weight.cols(), panels = product.heads * product.panels_of_a_head();
  // Many heads: fewer rows at a time, so that their packed inputs do not take much memory.
  const uint64_t chunk_max = std::max(kTaskRowsStep, kChunkRows / product.heads / kTaskRowsStep * kTaskRowsStep);
  const uint64_t chunk_rows = std::min(product.row_count, chunk_max);
  const uint64_t parts_wanted = (kTasksWanted + panels - 1) / panels;
  const uint64_t part_rows = (chunk_rows / parts_wanted + kTaskRowsStep) / kTaskRowsStep * kTaskRowsStep;
  const uint64_t worker_floats = kBlock * kWidth + part_rows * kWidth;
  CHORUS_ASSIGN(float* packed, context.scratch.acquire_floats("linear input", product.heads * chunk_rows * cols));
  CHORUS_ASSIGN(float* work, context.scratch.acquire_floats("linear sums", worker_floats * context.pool.threads()));
  for (uint64_t first_row = 0; first_row < product.row_count; first_row += chunk_max) {
    const Chunk chunk{first_row, std::min(chunk_max, product.row_count - first_row), part_rows};
    pack_chunk(context, target, product, chunk, packed);
    multiply_chunk(context, target, product, chunk, packed, work, worker_floats);
  }
  return {};
}

Status linear_cpu(CpuContext& context, const compute::LinearArgs& args) {
  if (args.x.rows == 0) return {};
  const PanelProduct product{cpu_weight(args.weight),
                             Rows(args.x),
                             MutableRows(args.out),
                             args.x.rows,
                             1,
                             0,
                             args.bias ? floats(args.bias) : nullptr,
                             args.store == compute::LinearStore::add};
  return multiply_panels(context, context.forced_variant("linear"), product);
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
