// What the checks of all operations are made of. Only for the check*.cpp of this folder; others include compute/check.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/result.h"
#include "compute/backend.h"

namespace chorus::compute {

inline constexpr uint64_t kElementBytes = 4;  // f32 and u32 alike

// The elements that an argument touches: `rows` runs of `cols`, `stride` apart.
struct Region {
  const char* name = "";
  const Buffer* buffer = nullptr;
  uint64_t offset = 0;
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t stride = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  uint64_t end() const { return offset + (rows - 1) * stride + cols; }  // not for an empty region
};

inline bool overlaps(const Region& a, const Region& b) {
  if (a.buffer != b.buffer || a.buffer == nullptr || a.empty() || b.empty()) return false;
  if (a.end() <= b.offset || b.end() <= a.offset) return false;
  if (a.stride != b.stride) return true;
  // Equal strides: columns side by side in one wide matrix do not touch. `shift` is where b's columns begin, seen from a's.
  const uint64_t stride = a.stride;
  const uint64_t shift = (b.offset % stride + stride - a.offset % stride) % stride;
  return shift < a.cols || shift + b.cols > stride;
}

// Collects the checks of one operation; each returns the first broken rule.
class Checker {
 public:
  explicit Checker(const char* operation) : operation_(operation) {}

  Error fail(std::string text) const { return make_error(ErrorCode::invalid_argument, std::string(operation_) + ": " + text); }

  Status count(const char* what, uint64_t found, uint64_t expected, const char* source) const {
    if (found == expected) return {};
    return fail(std::string(what) + ": expected " + std::to_string(expected) + " (" + source + "), found " + std::to_string(found));
  }

  Status present(const char* name, const void* pointer) const {
    if (pointer) return {};
    return fail(std::string(name) + ": expected an object, found null");
  }

  Status positive(const char* what, uint64_t found) const {
    if (found > 0) return {};
    return fail(std::string(what) + ": expected at least 1, found 0");
  }

  Status positive(const char* what, float found) const {
    if (std::isfinite(found) && found > 0) return {};
    return fail(std::string(what) + ": expected a finite number above 0, found " + std::to_string(found));
  }

  Status finite(const char* what, float found) const {
    if (std::isfinite(found)) return {};
    return fail(std::string(what) + ": expected a finite number, found " + std::to_string(found));
  }

  Result<Region> view(const char* name, const View& view) const {
    // Texts are made only on failure: this runs for every argument of every operation.
    if (!view.buffer) return fail(std::string(name) + " buffer: expected an object, found null");
    if (view.cols == 0) return fail(std::string(name) + " columns: expected at least 1, found 0");
    if (view.stride < view.cols) {
      return fail(std::string(name) + ": expected a stride of at least its " + std::to_string(view.cols) + " columns, found " +
                  std::to_string(view.stride));
    }
    const Region region{name, view.buffer, view.offset, view.rows, view.cols, view.stride};
    const uint64_t held = view.buffer->bytes() / kElementBytes;
    const uint64_t extent = region.rows == 0 ? 0 : (region.rows - 1) * region.stride + region.cols;  // below 2^64: u32 factors
    if (view.offset > held || extent > held - view.offset) {
      return fail(std::string(name) + ": expected its " + std::to_string(extent) + " elements from offset " + std::to_string(view.offset) +
                  " inside the buffer, found a buffer of " + std::to_string(held) + " elements");
    }
    return region;
  }

  // A dense run of elements from the start of a buffer. factors: its shape.
  Result<Region> vector(const char* name, const Buffer* buffer, std::initializer_list<uint64_t> factors) const {
    if (!buffer) return fail(std::string(name) + " buffer: expected an object, found null");
    uint64_t elements = 1;
    for (uint64_t factor : factors) {
      if (__builtin_mul_overflow(elements, factor, &elements))
        return fail(std::string(name) + ": expected at most 2^64 - 1 elements, found a larger shape");
    }
    const uint64_t held = buffer->bytes() / kElementBytes;
    if (elements > held) {
      return fail(std::string(name) + ": expected a buffer of at least " + std::to_string(elements) + " elements, found " +
                  std::to_string(held));
    }
    return Region{name, buffer, 0, elements == 0 ? 0u : 1u, elements, elements};
  }

  Status rows(const Region& region, uint64_t expected, const char* source) const {
    return count((std::string(region.name) + " rows").c_str(), region.rows, expected, source);
  }
  Status cols(const Region& region, uint64_t expected, const char* source) const {
    return count((std::string(region.name) + " columns").c_str(), region.cols, expected, source);
  }

  Status disjoint(const Region& output, std::initializer_list<Region> others) const {
    for (const Region& other : others) {
      if (overlaps(output, other)) {
        return fail(std::string(output.name) + ": expected no overlap with " + other.name +
                    ", found both on elements of one buffer from offsets " + std::to_string(output.offset) + " and " +
                    std::to_string(other.offset));
      }
    }
    return {};
  }

  Status sequences(const Sequences* sequences, uint64_t row_count) const {
    CHORUS_TRY(present("sequences", sequences));
    uint64_t next = 0;
    for (size_t index = 0; index < sequences->spans.size(); ++index) {
      const SequenceSpan& span = sequences->spans[index];
      if (span.start != next) {
        return fail("sequence " + std::to_string(index) + ": expected to start at row " + std::to_string(next) + ", found " +
                    std::to_string(span.start));
      }
      next += span.length;
    }
    CHORUS_TRY(count("rows covered by the sequences", next, row_count, "rows of the input"));
    if (!sequences->spans.empty()) {
      auto pairs = vector("sequences on the device", sequences->device, {sequences->spans.size(), 2});
      if (!pairs) return std::move(pairs).error();
    }
    return {};
  }

  // A state written after the rows: the only sequence's.
  Status one_sequence(const char* name, const Sequences& sequences) const {
    return count((std::string("sequences with ") + name).c_str(), sequences.spans.size(), 1, "a state belongs to one sequence");
  }

 private:
  const char* operation_;
};

inline Status check_attention_shape(const Checker& checker, const AttentionShape& shape) {
  CHORUS_TRY(checker.positive("query heads", uint64_t{shape.query_heads}));
  CHORUS_TRY(checker.positive("kv heads", uint64_t{shape.kv_heads}));
  CHORUS_TRY(checker.positive("head dim", uint64_t{shape.head_dim}));
  if (shape.query_heads % shape.kv_heads != 0) {
    return checker.fail("query heads: expected a multiple of the " + std::to_string(shape.kv_heads) + " kv heads, found " +
                        std::to_string(shape.query_heads));
  }
  return {};
}

// heads * dim * copies, false when it does not fit 64 bits (heads and dim are u32).
inline bool head_columns(uint64_t heads, uint64_t dim, uint64_t copies, uint64_t& out) {
  return !__builtin_mul_overflow(heads * dim, copies, &out);
}

inline Status check_head_columns(const Checker& checker, const Region& region, uint64_t heads, uint64_t dim, uint64_t copies,
                                 const char* source) {
  uint64_t expected = 0;
  if (!head_columns(heads, dim, copies, expected))
    return checker.fail(std::string(region.name) + ": expected heads times head dim to fit 64 bits, found more");
  return checker.cols(region, expected, source);
}

}  // namespace chorus::compute
