// Known-answer cases of select_keys. Whole numbers make scores exact, so that equal ones are many and the choice has one right answer;
// other data is judged by the scores: what was taken may be below what was left out by rounding only.
#include <bit>
#include <cstring>
#include <string>

#include "kernels/select_keys/select_keys_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace select_keys_cases {

constexpr const char* kOperation = "select_keys";
constexpr uint32_t kGuard = 0xabcd1234u;

struct Shape {
  uint32_t heads, head_dim, top_k;
  uint32_t rows, keys;
  bool exact = true;
  uint32_t gap = 0, offset = 0;
  uint32_t horizon = 0;
};

bool is_heavy(const Shape& shape) { return uint64_t{shape.rows} * shape.keys * ((shape.heads + 15) / 16) > 1000; }

std::string name_of(const Shape& shape) {
  return "heads " + std::to_string(shape.heads) + " x " + std::to_string(shape.head_dim) + ", top " + std::to_string(shape.top_k) +
         ", rows " + std::to_string(shape.rows) + " of keys " + std::to_string(shape.keys) + (shape.exact ? ", whole numbers" : "") +
         ", gap " + std::to_string(shape.gap) + ", offset " + std::to_string(shape.offset) + ", horizon " + std::to_string(shape.horizon);
}

struct Data {
  float scale = 1;
  std::vector<float> q, keys, weights;
};

Data make_data(const Shape& shape) {
  Random random(shape.rows * 31 + shape.keys * 7 + shape.head_dim);
  Data data;
  const size_t q_count = size_t{shape.rows} * shape.heads * shape.head_dim, k_count = size_t{shape.keys} * shape.head_dim;
  if (!shape.exact) {
    data.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    data.q = random.vector(q_count, -3, 3);
    data.keys = random.vector(k_count);
    data.weights = random.vector(size_t{shape.rows} * shape.heads);
    return data;
  }
  data.scale = 0.5f;
  const auto whole = [&](size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.next() % 5) - 2;
    return values;
  };
  data.q = whole(q_count);
  data.keys = whole(k_count);
  data.weights = whole(size_t{shape.rows} * shape.heads);
  return data;
}

Result<std::vector<uint32_t>> run_device(compute::Backend& backend, const Shape& shape, const Data& data) {
  const uint32_t q_cols = shape.heads * shape.head_dim;
  CHORUS_ASSIGN(const StridedInput q, make_input(backend, data.q, shape.rows, q_cols, q_cols + shape.gap, shape.offset));
  CHORUS_ASSIGN(const StridedInput keys,
                make_input(backend, data.keys, shape.keys, shape.head_dim, shape.head_dim + shape.gap, shape.offset));
  CHORUS_ASSIGN(const StridedInput weights,
                make_input(backend, data.weights, shape.rows, shape.heads, shape.heads + shape.gap, shape.offset));
  const size_t words = size_t{shape.rows} * ((shape.keys + 31) / 32);
  CHORUS_ASSIGN(const auto selected, upload_u32(backend, std::vector<uint32_t>(words + kSentinelCount, kGuard)));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->select_keys(
      {shape.heads, shape.head_dim, shape.top_k, data.scale, q.view, keys.view, weights.view, selected.get(), shape.horizon}));
  CHORUS_TRY(batch->submit());
  std::vector<uint32_t> content(words + kSentinelCount);
  CHORUS_TRY(backend.read(*selected, 0, std::as_writable_bytes(std::span(content))));
  for (size_t at = words; at < content.size(); ++at) {
    if (content[at] != kGuard) return make_error(ErrorCode::internal, "select_keys: wrote behind its output at word " + std::to_string(at));
  }
  content.resize(words);
  return content;
}

// One row by its scores: right count, nothing unseen, and the worst of the chosen against the best of the others.
void judge_row(const Shape& shape, const kernels::SelectKeysReference& expected, size_t row, const uint32_t* bits, CaseResult& result) {
  const size_t visible = shape.keys - shape.rows + row + 1;
  size_t chosen = 0, lowest = visible, highest = visible;
  const double* scores = expected.scores.data() + row * shape.keys;
  for (size_t key = 0; key < shape.keys; ++key) {
    const bool taken = (bits[key / 32] >> (key % 32) & 1) != 0;
    if (taken && key >= visible) result.detail = "row " + std::to_string(row) + ": took key " + std::to_string(key) + " behind it";
    if (key >= visible) continue;
    chosen += taken ? 1 : 0;
    size_t& extreme = taken ? lowest : highest;
    if (extreme == visible || (taken ? scores[key] < scores[extreme] : scores[key] > scores[extreme])) extreme = key;
  }
  const size_t count = std::min<size_t>(shape.top_k, visible);
  if (chosen != count) {
    result.detail = "row " + std::to_string(row) + ": expected " + std::to_string(count) + " keys, found " + std::to_string(chosen);
  }
  if (lowest < visible && highest < visible) {
    // A rounding a product and a head; both scores may be off.
    const double* sizes = expected.score_sizes.data() + row * shape.keys;
    const double tolerance = (shape.head_dim + shape.heads + 4) * 0x1p-24 * (sizes[lowest] + sizes[highest]);
    const double error = std::max(scores[highest] - scores[lowest], 0.0);
    if (error - tolerance > result.error - result.tolerance || result.tolerance == 0) result.error = error, result.tolerance = tolerance;
    if (!(error <= tolerance)) {
      result.detail = "row " + std::to_string(row) + ": took key " + std::to_string(lowest) + " of score " +
                      std::to_string(scores[lowest]) + " and left key " + std::to_string(highest) + " of score " +
                      std::to_string(scores[highest]);
    }
  }
  if (!result.detail.empty()) result.pass = false;
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const Data data = make_data(shape);
  CHORUS_ASSIGN(const std::vector<uint32_t> found, run_device(backend, shape, data));
  const kernels::SelectKeysReference expected = kernels::reference_select_keys(
      {shape.heads, shape.head_dim, shape.top_k, data.scale, shape.rows, shape.keys, data.q, data.keys, data.weights, shape.horizon});
  CaseResult result{kOperation, variant, name_of(shape), 0, 0, true, {}};
  const size_t words = (size_t{shape.keys} + 31) / 32;
  for (size_t row = 0; row < shape.rows; ++row) {
    if (!shape.exact) {
      judge_row(shape, expected, row, found.data() + row * words, result);
      continue;
    }
    for (size_t word = 0; word < words; ++word) {
      const uint32_t difference = found[row * words + word] ^ expected.selected[row * words + word];
      if (difference == 0) continue;
      result.error += std::popcount(difference);
      if (result.pass) {
        const size_t key = word * 32 + static_cast<size_t>(std::countr_zero(difference));
        result.detail =
            "row " + std::to_string(row) + ": expected key " + std::to_string(key) +
            ((expected.selected[row * words + word] >> (key % 32) & 1) != 0 ? " taken, found it left" : " left, found it taken");
      }
      result.pass = false;
    }
  }
  return result;
}

std::vector<Shape> shapes_of(CaseSet set) {
  std::vector<Shape> shapes = {
      {3, 8, 5, 4, 70}, {4, 16, 20, 3, 130, false}, {2, 5, 64, 40, 40, true, 3, 1}, {2, 3, 9, 30, 60, true, 0, 0, 75}};
  if (set == CaseSet::quick) return shapes;
  const std::vector<Shape> more = {
      {1, 1, 1, 1, 1},
      {2, 4, 3, 0, 9},
      {1, 4, 1, 3, 33},
      {1, 2, 32, 1, 64},
      {2, 3, 33, 2, 65},
      {5, 7, 1000, 3, 100},
      {17, 33, 50, 2, 300},
      {64, 128, 16, 2, 70, false},
      {4, 32, 512, 2, 2048, false},
      {3, 4, 2048, 2, 5000},
      {1, 4, 2048, 1, 65537},
      {2, 4, 7, 70, 300},
      {4, 20, 9, 5, 200, false, 4, 8},
      {1, 2, 3, 20, 40, true, 0, 0, 500},
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

}  // namespace select_keys_cases

std::vector<CaseResult> run_select_keys_cases(compute::Backend& backend, CaseSet set) {
  using namespace select_keys_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    // A software adapter runs light work with every variant, and heavy work, which its own choice is for, once.
    for (const Shape& shape : shapes_of(set)) {
      if (backend.info().software && set == CaseSet::full && variant.empty() != is_heavy(shape)) continue;
      Result<CaseResult> result = run_one(backend, variant, shape);
      if (!result && !variant.empty() && result.error().code == ErrorCode::unsupported) continue;  // not a shape of this variant
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
