// Softmax attention over a cache in spans of kSpanKeys keys, counted from key 0.
//
// A span gives, per row, the largest score, the sum of weights and the weighted sum of values, gathered with a running maximum (Dao et al.
// 2022, "FlashAttention") over blocks of kBlockKeys keys. Spans meet in their order, so a row's sums have an order that depends on its
// position alone. Many rows: a task takes a tile of rows through all spans. Few rows: tasks take spans, and the results meet afterwards.
// A tile packs the query heads of one kv head, which share the reads of keys and values. A key that no row of the tile sees is not read;
// one that some row does not see has a weight of exactly zero there. Sums of weights are kept in f64.
#include "kernels/attend/attend_cpu.h"

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attend/attend_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/cpu_vector-inl.h"

#ifndef CHORUS_ATTEND_CPU_ONCE
#define CHORUS_ATTEND_CPU_ONCE
namespace chorus::kernels {

constexpr uint64_t kBlockKeys = 64;  // a u64 says which of them a row sees
constexpr uint64_t kSpanKeys = 512;
constexpr uint64_t kTileRows = 32;
constexpr uint64_t kPadding = 16;  // floats; every target's vector divides it

constexpr uint64_t padded(uint64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

// What a tile has gathered: of each row the weighted sum of values [kTileRows][padded value dim], the largest score, the sum of weights.
// A sum of zero says that no key was seen; the other two then mean nothing.
struct Gathered {
  explicit Gathered(float* memory, uint64_t value_dim)
      : values(memory), width(padded(value_dim)), sums(reinterpret_cast<double*>(memory + kTileRows * width)) {
    maxima = reinterpret_cast<float*>(sums + kTileRows);
  }
  static uint64_t floats(uint64_t value_dim) { return kTileRows * padded(value_dim) + 4 * kTileRows; }

  float* values;
  uint64_t width;
  double* sums;
  float* maxima;
};

// Packed rows [first, first + count) of a kv head: row * group + query head within the group.
struct AttendTile {
  const compute::AttendArgs* args;
  uint64_t kv_head;
  uint64_t first;
  uint64_t count;

  uint64_t group() const { return args->query_heads / args->kv_heads; }
  uint64_t row(uint64_t at) const { return (first + at) / group(); }
  uint64_t head(uint64_t at) const { return kv_head * group() + (first + at) % group(); }
  // Keys that a row may see by its position: [first_key, end_key).
  uint64_t end_key(uint64_t row) const { return uint64_t{args->keys.rows} - args->q.rows + row + 1; }
  uint64_t first_key(uint64_t row) const {
    const uint64_t end = end_key(row);
    return args->window > 0 && end > args->window ? end - args->window : 0;
  }
  uint64_t first_span() const { return first_key(row(0)) / kSpanKeys; }
  uint64_t end_span() const { return (end_key(row(count - 1)) + kSpanKeys - 1) / kSpanKeys; }
};

// The keys of block [block, block + kBlockKeys) that a row sees.
inline uint64_t visible_keys(const AttendTile& tile, uint64_t row, uint64_t block) {
  const uint64_t first = std::max(tile.first_key(row), block), end = std::min(tile.end_key(row), block + kBlockKeys);
  if (first >= end) return 0;
  uint64_t mask = (~uint64_t{0} >> (kBlockKeys - (end - first))) << (first - block);
  if (tile.args->selected) {
    const uint64_t words = (uint64_t{tile.args->keys.rows} + 31) / 32;
    const uint32_t* bits = indices(tile.args->selected) + row * words;
    const uint64_t word = block / 32;
    mask &= bits[word] | (word + 1 < words ? uint64_t{bits[word + 1]} << 32 : 0);
  }
  return mask;
}

}  // namespace chorus::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {
namespace {

// scores[r][place of key j] = scale * q[r] . keys[j], one vector of partial sums each, columns in order.
template <uint64_t kRows, uint64_t kKeys>
HWY_INLINE void score_tile(const float* const* q, const float* const* keys, uint64_t dim, float scale, const uint8_t* places,
                           float* const* scores) {
  const Floats d;
  Vector sum[kRows][kKeys];
#pragma GCC unroll 16
  for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (uint64_t k = 0; k < kKeys; ++k) sum[r][k] = hn::Zero(d);
  }
  const auto step = [&](const auto& load) HWY_ATTR {
    Vector key[kKeys];
#pragma GCC unroll 16
    for (uint64_t k = 0; k < kKeys; ++k) key[k] = load(keys[k]);
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) {
      const Vector query = load(q[r]);
#pragma GCC unroll 16
      for (uint64_t k = 0; k < kKeys; ++k) sum[r][k] = hn::MulAdd(query, key[k], sum[r][k]);
    }
  };
  uint64_t at = 0;
  for (; at + kLanes <= dim; at += kLanes) step([&](const float* row) HWY_ATTR { return hn::LoadU(d, row + at); });
  if (at < dim) step([&](const float* row) HWY_ATTR { return load_part(d, row + at, dim - at); });
#pragma GCC unroll 16
  for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (uint64_t k = 0; k < kKeys; ++k) scores[r][places[k]] = scale * hn::GetLane(hn::SumOfLanes(d, sum[r][k]));
  }
}

template <uint64_t kRows>
void score_rows(const float* const* q, const float* const* keys, uint64_t key_count, uint64_t dim, float scale, const uint8_t* places,
                float* const* scores) {
  constexpr uint64_t kKeys = 8 / kRows;
  uint64_t at = 0;
  for (; at + kKeys <= key_count; at += kKeys) score_tile<kRows, kKeys>(q, keys + at, dim, scale, places + at, scores);
  for (; at < key_count; ++at) score_tile<kRows, 1>(q, keys + at, dim, scale, places + at, scores);
}

// Turns the scores of a block into weights under the running maximum; returns the factor for what was gathered before.
float weigh_row(float* scores, uint64_t mask, float* maximum, double* sum) {
  const Floats d;
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  for (uint64_t hidden = ~mask; hidden != 0; hidden &= hidden - 1) scores[std::countr_zero(hidden)] = kHidden;
  Vector largest = hn::Set(d, *maximum);
  for (uint64_t at = 0; at < kBlockKeys; at += kLanes) {
    const Vector score = hn::Load(d, scores + at);
    largest = hn::IfThenElse(hn::Or(hn::Gt(score, largest), hn::IsNaN(score)), score, largest);  // a NaN stays
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(largest, d, lanes);
  float top = lanes[0];
  for (uint64_t lane = 1; lane < kLanes; ++lane) top = lanes[lane] > top || std::isnan(lanes[lane]) ? lanes[lane] : top;
  const Vector shift = hn::Set(d, top);
  Vector total = hn::Zero(d);
  for (uint64_t at = 0; at < kBlockKeys; at += kLanes) {
    const Vector weight = exp_of_nonpositive(d, hn::Sub(hn::Load(d, scores + at), shift));
    hn::Store(weight, d, scores + at);
    total = hn::Add(total, weight);
  }
  const float factor = *maximum == kHidden ? 0.0f : std::exp(*maximum - top);
  *sum = *sum * factor + hn::GetLane(hn::SumOfLanes(d, total));
  *maximum = top;
  return factor;
}

// out[r][columns] = out[r][columns] * factors[r] + sum over keys in order of weights[r][place] * values[key][columns].
template <uint64_t kRows, uint64_t kVectors, typename Load>
HWY_INLINE void value_tile(const float* const* weights, const float* factors, const float* const* values, uint64_t key_count,
                           const uint8_t* places, float* out, uint64_t width, const Load& load) {
  const Floats d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 16
  for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) {
      sum[r][v] = factors[r] == 0 ? hn::Zero(d) : hn::Mul(hn::Load(d, out + r * width + v * kLanes), hn::Set(d, factors[r]));
    }
  }
  for (uint64_t key = 0; key < key_count; ++key) {
    Vector line[kVectors];
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) line[v] = load(values[key] + v * kLanes);
#pragma GCC unroll 16
    for (uint64_t r = 0; r < kRows; ++r) {
      const Vector weight = hn::Set(d, weights[r][places[key]]);
#pragma GCC unroll 16
      for (uint64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, line[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (uint64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (uint64_t v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, out + r * width + v * kLanes);
  }
}

template <uint64_t kRows>
void value_rows(const float* const* weights, const float* factors, const float* const* values, uint64_t key_count, const uint8_t* places,
                float* out, uint64_t width, uint64_t dim) {
  const Floats d;
  const float* lines[kBlockKeys];
  uint64_t at = 0;
  const auto shift = [&] {
    for (uint64_t key = 0; key < key_count; ++key) lines[key] = values[key] + at;
  };
  const auto whole = [&](const float* from) HWY_ATTR { return hn::LoadU(d, from); };
  for (; at + kTileVectors * kLanes <= dim; at += kTileVectors * kLanes) {
    shift();
    value_tile<kRows, kTileVectors>(weights, factors, lines, key_count, places, out + at, width, whole);
  }
  for (; at < dim; at += kLanes) {
    shift();
    const uint64_t rest = dim - at;
    if (rest >= kLanes) {
      value_tile<kRows, 1>(weights, factors, lines, key_count, places, out + at, width, whole);
    } else {
      value_tile<kRows, 1>(weights, factors, lines, key_count, places, out + at, width,
                           [&](const float* from) HWY_ATTR { return load_part(d, from, rest); });
    }
  }
}

// The keys of a block that some row of the tile sees.
struct BlockKeys {
  uint64_t count = 0;
  uint8_t places[kBlockKeys];  // within the block, ascending
  const float* keys[kBlockKeys];
  const float* values[kBlockKeys];

  BlockKeys(const AttendTile& tile, uint64_t block, uint64_t seen) {
    const compute::AttendArgs& args = *tile.args;
    const Rows key_rows(args.keys), value_rows(args.values);
    for (; seen != 0; seen &= seen - 1) {
      const auto place = static_cast<uint64_t>(std::countr_zero(seen));
      places[count] = static_cast<uint8_t>(place);
      keys[count] = key_rows.row(block + place) + tile.kv_head * args.key_dim;
      values[count] = value_rows.row(block + place) + tile.kv_head * args.value_dim;
      ++count;
    }
  }
};

// scores: [kTileRows][kBlockKeys]
void attend_block(const AttendTile& tile, uint64_t block, const Gathered& gathered, float* scores) {
  const compute::AttendArgs& args = *tile.args;
  uint64_t masks[kTileRows], seen = 0;
  for (uint64_t at = 0; at < tile.count; ++at) {
    masks[at] = at > 0 && tile.row(at) == tile.row(at - 1) ? masks[at - 1] : visible_keys(tile, tile.row(at), block);
    seen |= masks[at];
  }
  if (seen == 0) return;
  const BlockKeys keys(tile, block, seen);
  const Rows q(args.q);
  const float* queries[kTileRows];
  float* lines[kTileRows];
  float factors[kTileRows];
  for (uint64_t at = 0; at < tile.count; ++at) {
    queries[at] = q.row(tile.row(at)) + tile.head(at) * args.key_dim;
    lines[at] = scores + at * kBlockKeys;
  }
  uint64_t at = 0;
  for (; at + 2 <= tile.count; at += 2)
    score_rows<2>(queries + at, keys.keys, keys.count, args.key_dim, args.scale, keys.places, lines + at);
  if (at < tile.count) score_rows<1>(queries + at, keys.keys, keys.count, args.key_dim, args.scale, keys.places, lines + at);
  for (at = 0; at < tile.count; ++at) {
    if (masks[at] == 0) {
      std::memset(lines[at], 0, kBlockKeys * sizeof(float));
      factors[at] = gathered.sums[at] == 0 ? 0.0f : 1.0f;
    } else {
      factors[at] = weigh_row(lines[at], masks[at], gathered.maxima + at, gathered.sums + at);
    }
  }
  for (at = 0; at + 4 <= tile.count; at += 4) {
    value_rows<4>(lines + at, factors + at, keys.values, keys.count, keys.places, gathered.values + at * gathered.width, gathered.width,
                  args.value_dim);
  }
  for (; at < tile.count; ++at) {
    value_rows<1>(lines + at, factors + at, keys.values, keys.count, keys.places, gathered.values + at * gathered.width, gathered.width,
                  args.value_dim);
  }
}

void attend_span(const AttendTile& tile, uint64_t span, const Gathered& gathered, float* scores) {
  for (uint64_t at = 0; at < tile.count; ++at) {
    gathered.sums[at] = 0;
    gathered.maxima[at] = -std::numeric_limits<float>::infinity();
  }
  const uint64_t end = std::min((span + 1) * kSpanKeys, tile.end_key(tile.row(tile.count - 1)));
  const uint64_t first = std::max(span * kSpanKeys, tile.first_key(tile.row(0)) / kBlockKeys * kBlockKeys);
  for (uint64_t block = first; block < end; block += kBlockKeys) attend_block(tile, block, gathered, scores);
}

// total += part, where part holds the keys that follow.
void merge_span(const AttendTile& tile, const Gathered& part, const Gathered& total) {
  const Floats d;
  for (uint64_t at = 0; at < tile.count; ++at) {
    if (part.sums[at] == 0) continue;
    const bool first = total.sums[at] == 0;
    const float before = total.maxima[at], added = part.maxima[at];
    const float top = first || added > before || std::isnan(added) ? added : before;
    const float keep = first ? 0.0f : std::exp(before - top), take = std::exp(added - top);
    total.sums[at] = first ? part.sums[at] : total.sums[at] * keep + part.sums[at] * take;
    total.maxima[at] = top;
    const float* from = part.values + at * part.width;
    float* to = total.values + at * total.width;
    if (first) {
      std::memcpy(to, from, part.width * sizeof(float));
      continue;
    }
    const Vector kept = hn::Set(d, keep), taken = hn::Set(d, take);
    for (uint64_t i = 0; i < part.width; i += kLanes) {
      hn::Store(hn::MulAdd(hn::Load(d, from + i), taken, hn::Mul(hn::Load(d, to + i), kept)), d, to + i);
    }
  }
}

void begin_total(const AttendTile& tile, const Gathered& total) {
  for (uint64_t at = 0; at < tile.count; ++at) total.sums[at] = 0;
}

// A row that sees no key, against the promise, becomes zero.
void finish_tile(const AttendTile& tile, const Gathered& total) {
  const compute::AttendArgs& args = *tile.args;
  const MutableRows out(args.out);
  for (uint64_t at = 0; at < tile.count; ++at) {
    double sum = total.sums[at];
    float* target = out.row(tile.row(at)) + tile.head(at) * args.value_dim;
    if (sum == 0) {
      std::memset(target, 0, args.value_dim * sizeof(float));
      continue;
    }
    if (args.sinks) sum += std::exp(static_cast<double>(floats(args.sinks)[tile.head(at)]) - total.maxima[at]);
    const Floats d;
    const float* row = total.values + at * total.width;
    const Vector factor = hn::Set(d, static_cast<float>(1 / sum));
    for_vectors(args.value_dim, [&](const auto& load, const auto& store) HWY_ATTR { store(hn::Mul(load(row), factor), target); });
  }
}

// All spans of a tile. memory: two Gathered, then scores.
void attend_tile(const AttendTile& tile, float* memory) {
  const uint64_t floats = Gathered::floats(tile.args->value_dim);
  const Gathered part(memory, tile.args->value_dim), total(memory + floats, tile.args->value_dim);
  begin_total(tile, total);
  for (uint64_t span = tile.first_span(); span < tile.end_span(); ++span) {
    attend_span(tile, span, part, memory + 2 * floats);
    merge_span(tile, part, total);
  }
  finish_tile(tile, total);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(attend_tile);
HWY_EXPORT(attend_span);
HWY_EXPORT(merge_span);
HWY_EXPORT(begin_total);
HWY_EXPORT(finish_tile);

namespace {

constexpr uint64_t kScores = kTileRows * kBlockKeys;
constexpr uint64_t kTasksPerThread = 4;

AttendTile tile_of(const compute::AttendArgs& args, uint64_t index) {
  const uint64_t packed = uint64_t{args.q.rows} * (args.query_heads / args.kv_heads);
  const uint64_t first = index / args.kv_heads * kTileRows;
  return {&args, index % args.kv_heads, first, std::min(kTileRows, packed - first)};
}

// Few tiles: `wave` spans of every tile at a time, then they meet in order.
Status attend_by_spans(CpuContext& context, const compute::AttendArgs& args, uint64_t tiles, uint64_t wave, int64_t target) {
  const uint64_t floats = Gathered::floats(args.value_dim);
  CHORUS_ASSIGN(float* scores, context.scratch.acquire_floats("attend scores", kScores * context.pool.threads()));
  CHORUS_ASSIGN(float* parts, context.scratch.acquire_floats("attend parts", floats * tiles * (wave + 1)));
  float* totals = parts + floats * tiles * wave;
  uint64_t first = UINT64_MAX, end = 0;
  for (uint64_t index = 0; index < tiles; ++index) {
    const AttendTile tile = tile_of(args, index);
    first = std::min(first, tile.first_span());
    end = std::max(end, tile.end_span());
    CHORUS_SIMD(begin_total, target)(tile, Gathered(totals + index * floats, args.value_dim));
  }
  for (uint64_t span = first; span < end; span += wave) {
    const uint64_t count = std::min(wave, end - span);
    const bool last = span + count == end;
    context.pool.run(tiles * count, [&](uint64_t task, uint32_t worker) {
      CHORUS_SIMD(attend_span, target)
      (tile_of(args, task % tiles), span + task / tiles, Gathered(parts + task * floats, args.value_dim), scores + worker * kScores);
    });
    context.pool.run(tiles, [&](uint64_t index, uint32_t) {
      const AttendTile tile = tile_of(args, index);
      const Gathered total(totals + index * floats, args.value_dim);
      for (uint64_t i = 0; i < count; ++i) {
        CHORUS_SIMD(merge_span, target)(tile, Gathered(parts + (i * tiles + index) * floats, args.value_dim), total);
      }
      if (last) CHORUS_SIMD(finish_tile, target)(tile, total);
    });
  }
  return {};
}

}  // namespace

Status attend_cpu(CpuContext& context, const compute::AttendArgs& args) {
  if (args.q.rows == 0) return {};
  const int64_t target = simd_target(context.forced_variant("attend"));
  const uint64_t packed = uint64_t{args.q.rows} * (args.query_heads / args.kv_heads);
  const uint64_t tiles = (packed + kTileRows - 1) / kTileRows * args.kv_heads;
  const uint64_t wanted = kTasksPerThread * context.pool.threads();
  const uint64_t wave = std::min((wanted + tiles - 1) / tiles, (args.keys.rows + kSpanKeys - 1) / kSpanKeys);
  if (wave > 1 && context.pool.threads() > 1) return attend_by_spans(context, args, tiles, wave, target);
  const uint64_t floats = 2 * Gathered::floats(args.value_dim) + kScores;
  CHORUS_ASSIGN(float* scratch, context.scratch.acquire_floats("attend", floats * context.pool.threads()));
  // The last tiles see the most keys: they go first, so that no thread is left with a long one at the end.
  context.pool.run(tiles, [&](uint64_t index, uint32_t worker) {
    CHORUS_SIMD(attend_tile, target)(tile_of(args, tiles - 1 - index), scratch + worker * floats);
  });
  return {};
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
