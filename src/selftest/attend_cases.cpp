// Known-answer cases of attend: head groups, any head size, windows, sinks, chosen keys, values inside the keys, and that a row keeps its
// bits however the rows are split into calls.
#include <cstring>
#include <string>

#include "kernels/attend/attend_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace attend_cases {

constexpr const char* kOperation = "attend";

enum class Choice {
  all,      // no bitmask
  half,     // every key with probability 1/2
  few,      // about one key in 40, so that whole blocks are left out
  one_key,  // one key a row, somewhere
};

struct Shape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  uint32_t rows, keys;
  uint32_t window = 0;
  bool sinks = false;
  Choice choice = Choice::all;
  bool values_in_keys = false;   // the first value_dim columns of each head's key
  uint32_t gap = 0, offset = 0;  // of the strided inputs
  float score_size = 3;          // typical size of a score
};

// Work that a software adapter does once, with the variant of the backend's choice.
bool is_heavy(const Shape& shape) { return double{1} * shape.rows * shape.query_heads * shape.keys * shape.key_dim > 2e6; }

std::string name_of(const Shape& shape) {
  std::string name = "heads " + std::to_string(shape.query_heads) + "/" + std::to_string(shape.kv_heads) + " x " +
                     std::to_string(shape.key_dim) + "/" + std::to_string(shape.value_dim) + ", rows " + std::to_string(shape.rows) +
                     " of keys " + std::to_string(shape.keys);
  if (shape.window > 0) name += ", window " + std::to_string(shape.window);
  if (shape.sinks) name += ", sinks";
  if (shape.choice != Choice::all) name += ", choice " + std::to_string(static_cast<int>(shape.choice));
  if (shape.values_in_keys) name += ", values in the keys";
  return name + ", gap " + std::to_string(shape.gap) + ", offset " + std::to_string(shape.offset) + ", scores " +
         std::to_string(shape.score_size);
}

float scale_of(const Shape& shape) { return 1 / std::sqrt(static_cast<float>(shape.key_dim)); }
uint32_t words_of(uint32_t keys) { return (keys + 31) / 32; }

struct Data {
  std::vector<float> q, keys, values, sinks;
  std::vector<uint32_t> selected;  // [rows, words_of(keys)]
};

bool in_reach(const Shape& shape, uint32_t row, uint32_t key) {
  const uint32_t position = shape.keys - shape.rows + row;
  return key <= position && (shape.window == 0 || uint64_t{key} + shape.window > position);
}

void choose_keys(const Shape& shape, Random& random, Data& data) {
  const uint32_t words = words_of(shape.keys);
  data.selected.assign(size_t{shape.rows} * words, 0);
  for (uint32_t row = 0; row < shape.rows; ++row) {
    uint32_t* bits = data.selected.data() + size_t{row} * words;
    const uint32_t position = shape.keys - shape.rows + row;
    const uint32_t reach = shape.window == 0 ? position + 1 : std::min(shape.window, position + 1);
    const uint32_t sure = position - static_cast<uint32_t>(random.next() % reach);  // every row sees a key
    // Bits behind the row's position and before its window are set at times: they must not count.
    for (uint32_t key = 0; key < shape.keys; ++key) {
      const uint32_t draw = static_cast<uint32_t>(random.next() % 80);
      const bool chosen = shape.choice == Choice::one_key ? !in_reach(shape, row, key) : draw < (shape.choice == Choice::few ? 2 : 40);
      if (chosen || key == sure) bits[key / 32] |= 1u << (key % 32);
    }
  }
}

Data make_data(const Shape& shape) {
  Data data;
  Random random(shape.rows * 47 + shape.keys * 3 + shape.key_dim);
  const size_t q_cols = size_t{shape.query_heads} * shape.key_dim;
  // A dot product of key_dim products of uniforms in [-1, 1] has deviation sqrt(key_dim) / 3; the scale is key_dim^-0.5.
  data.q = random.vector(shape.rows * q_cols, -3 * shape.score_size, 3 * shape.score_size);
  data.keys = random.vector(size_t{shape.keys} * shape.kv_heads * shape.key_dim);
  data.values = random.vector(size_t{shape.keys} * shape.kv_heads * shape.value_dim);
  if (shape.values_in_keys) {  // one kv head
    for (uint32_t key = 0; key < shape.keys; ++key) {
      std::copy_n(data.keys.begin() + size_t{key} * shape.key_dim, shape.value_dim, data.values.begin() + size_t{key} * shape.value_dim);
    }
  }
  if (shape.sinks) data.sinks = random.vector(shape.query_heads, -shape.score_size, 2 * shape.score_size);
  if (shape.choice != Choice::all) choose_keys(shape, random, data);
  return data;
}

struct DeviceData {
  StridedInput q, keys, values;
  std::shared_ptr<compute::Buffer> sinks, selected;
};

Result<DeviceData> upload_data(compute::Backend& backend, const Shape& shape, const Data& data) {
  const uint32_t q_cols = shape.query_heads * shape.key_dim, k_cols = shape.kv_heads * shape.key_dim;
  const uint32_t v_cols = shape.kv_heads * shape.value_dim;
  DeviceData device;
  CHORUS_ASSIGN(device.q, make_input(backend, data.q, shape.rows, q_cols, q_cols + shape.gap, shape.offset));
  CHORUS_ASSIGN(device.keys, make_input(backend, data.keys, shape.keys, k_cols, k_cols + shape.gap, shape.offset));
  if (shape.values_in_keys) {
    device.values = device.keys;
    device.values.view.cols = v_cols;
  } else {
    CHORUS_ASSIGN(device.values, make_input(backend, data.values, shape.keys, v_cols, v_cols + shape.gap, shape.offset));
  }
  if (shape.sinks) {
    CHORUS_ASSIGN(device.sinks, upload(backend, data.sinks));
  }
  if (!data.selected.empty()) {
    CHORUS_ASSIGN(device.selected, upload_u32(backend, data.selected));
  }
  return device;
}

Result<GuardedOutput> run_device(compute::Backend& backend, const Shape& shape, const Data& data) {
  CHORUS_ASSIGN(const DeviceData device, upload_data(backend, shape, data));
  const uint32_t cols = shape.query_heads * shape.value_dim;
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, shape.rows, cols, cols + shape.gap));
  compute::AttendArgs args;
  args.query_heads = shape.query_heads;
  args.kv_heads = shape.kv_heads;
  args.key_dim = shape.key_dim;
  args.value_dim = shape.value_dim;
  args.scale = scale_of(shape);
  args.window = shape.window;
  args.q = device.q.view;
  args.keys = device.keys.view;
  args.values = device.values.view;
  args.sinks = device.sinks.get();
  args.selected = device.selected.get();
  args.out = output.view;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->attend(args));
  CHORUS_TRY(batch->submit());
  return output;
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const Data data = make_data(shape);
  CHORUS_ASSIGN(const GuardedOutput output, run_device(backend, shape, data));
  const kernels::AttendReference expected =
      kernels::reference_attend({shape.query_heads, shape.kv_heads, shape.key_dim, shape.value_dim, scale_of(shape), shape.window,
                                 shape.rows, shape.keys, data.q, data.keys, data.values, data.sinks, data.selected});
  // The weighted sum: a rounding a key, of which sqrt(keys) remain; exp, division and the merges of blocks: a few.
  // The scores: a rounding a product; exp turns their absolute error, and its own of 2|x| units in the last place, into a relative one.
  const double keys_seen = shape.window > 0 ? std::min(shape.window, shape.keys) : shape.keys;
  const auto tolerance = [&](size_t i) {
    return 0x1p-23 * ((8 + std::sqrt(keys_seen) / 2) * expected.value_size[i] + 4 * expected.score_size[i]) + 1e-37;
  };
  return compare(backend, output, expected.out, tolerance, kOperation, variant, name_of(shape));
}

// Rows [first, first + count) with the keys up to the last of them, as a call of its own.
std::pair<Shape, Data> part_of(const Shape& shape, const Data& data, uint32_t first, uint32_t count) {
  Shape part = shape;
  part.rows = count;
  part.keys = shape.keys - shape.rows + first + count;
  Data cut;
  const size_t q_cols = size_t{shape.query_heads} * shape.key_dim;
  cut.q.assign(data.q.begin() + static_cast<ptrdiff_t>(first * q_cols), data.q.begin() + static_cast<ptrdiff_t>((first + count) * q_cols));
  cut.keys.assign(data.keys.begin(), data.keys.begin() + ptrdiff_t{part.keys} * shape.kv_heads * shape.key_dim);
  cut.values.assign(data.values.begin(), data.values.begin() + ptrdiff_t{part.keys} * shape.kv_heads * shape.value_dim);
  cut.sinks = data.sinks;
  if (!data.selected.empty()) {
    const size_t words = words_of(shape.keys), part_words = words_of(part.keys);
    for (size_t row = first; row < size_t{first} + count; ++row) {
      const auto from = data.selected.begin() + static_cast<ptrdiff_t>(row * words);
      cut.selected.insert(cut.selected.end(), from, from + static_cast<ptrdiff_t>(part_words));
    }
  }
  return {part, std::move(cut)};
}

// The rows in calls of the given sizes (the last one as often as needed) give the same bits as in one call.
Result<CaseResult> run_split(compute::Backend& backend, const std::string& variant, const Shape& shape,
                             const std::vector<uint32_t>& sizes) {
  const Data data = make_data(shape);
  const uint32_t cols = shape.query_heads * shape.value_dim;
  CHORUS_ASSIGN(const GuardedOutput together, run_device(backend, shape, data));
  CHORUS_ASSIGN(const std::vector<float> whole, download(backend, *together.buffer));
  CaseResult result{kOperation, variant, name_of(shape) + ", same bits in calls of", 0, 0, true, {}};
  for (const uint32_t size : sizes) result.name += " " + std::to_string(size);
  size_t call = 0;
  for (uint32_t first = 0; first < shape.rows; ++call) {
    const uint32_t count = std::min(sizes[std::min(call, sizes.size() - 1)], shape.rows - first);
    const auto [part, cut] = part_of(shape, data, first, count);
    CHORUS_ASSIGN(const GuardedOutput single, run_device(backend, part, cut));
    CHORUS_ASSIGN(const std::vector<float> content, download(backend, *single.buffer));
    for (size_t row = 0; row < count; ++row) {
      const float* a = content.data() + single.view.offset + row * single.view.stride;
      const float* b = whole.data() + together.view.offset + (first + row) * together.view.stride;
      for (uint32_t col = 0; col < cols; ++col) {
        result.error = std::max(result.error, static_cast<double>(std::abs(a[col] - b[col])));
        if (std::memcmp(&a[col], &b[col], 4) == 0) continue;
        if (result.pass) {
          result.detail = "row " + std::to_string(first + row) + " col " + std::to_string(col) + ": in a call of " + std::to_string(count) +
                          " rows " + std::to_string(a[col]) + ", in one call " + std::to_string(b[col]);
        }
        result.pass = false;
      }
    }
    first += count;
  }
  return result;
}

std::vector<Shape> shapes_of(CaseSet set) {
  std::vector<Shape> shapes = {
      {4, 2, 32, 32, 3, 70},
      {3, 3, 5, 7, 2, 66, 3, true},
      {8, 1, 36, 20, 1, 130, 0, false, Choice::half, true},
      {4, 1, 64, 128, 20, 20, 0, true, Choice::all, false, 4, 8},
  };
  if (set == CaseSet::quick) return shapes;
  const std::vector<Shape> more = {
      {1, 1, 1, 1, 1, 1},
      {2, 1, 3, 1, 0, 5},
      {2, 2, 8, 8, 1, 64},
      {2, 2, 8, 8, 1, 65},
      {2, 1, 16, 16, 129, 129},
      {4, 2, 24, 24, 5, 300, 1},
      {4, 2, 24, 24, 5, 300, 1, true},
      {4, 2, 24, 24, 70, 300, 64},
      {4, 2, 24, 24, 3, 100, 1000, true},
      {6, 2, 40, 40, 2, 200, 0, false, Choice::few},
      {6, 2, 40, 40, 40, 200, 90, true, Choice::half, false, 3, 1},
      {6, 2, 40, 12, 9, 200, 0, false, Choice::one_key},
      {2, 2, 16, 16, 4, 60, 0, false, Choice::all, false, 0, 0, 40},
      {2, 2, 16, 16, 4, 600, 0, true, Choice::all, false, 0, 0, 0.01f},
      {128, 1, 576, 512, 1, 3, 0, false, Choice::all, true},
      {16, 1, 576, 512, 2, 70, 0, false, Choice::half, true},
      {2, 1, 192, 128, 3, 70},
      {1, 1, 256, 256, 2, 130},
      {1, 1, 520, 515, 1, 67, 0, true},
      {64, 8, 64, 64, 1, 200, 128, true},
      {32, 4, 128, 128, 1, 520},
      {4, 4, 128, 128, 1, 1100},
      {2, 1, 32, 32, 200, 500},
      {2, 1, 16, 16, 90, 1030, 500, true, Choice::few},
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

struct Split {
  Shape shape;
  std::vector<uint32_t> sizes;
};

std::vector<Split> splits_of(CaseSet set) {
  std::vector<Split> splits = {{{4, 2, 16, 16, 21, 90}, {1, 7, 4, 9}}};
  if (set == CaseSet::quick) return splits;
  const std::vector<Split> more = {
      {{4, 1, 20, 12, 70, 200, 0, true}, {64, 1}},
      {{2, 2, 8, 8, 100, 500, 100, true, Choice::half}, {1, 7, 64, 28}},
      {{8, 1, 36, 32, 66, 131, 0, false, Choice::few, true}, {65, 1}},
      {{2, 2, 128, 128, 3, 600}, {1}},
      {{2, 1, 5, 3, 20, 70, 9, false, Choice::all, false, 1, 3}, {13, 2}},
  };
  splits.insert(splits.end(), more.begin(), more.end());
  return splits;
}

}  // namespace attend_cases

std::vector<CaseResult> run_attend_cases(compute::Backend& backend, CaseSet set) {
  using namespace attend_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    // A software adapter runs light work with every variant, and heavy work, which its own choice is for, once. It takes seconds to compile
    // the tile of wide values, which is the text of the narrow one.
    const auto left_out = [&](const Shape& shape) {
      if (!backend.info().software) return false;
      return (set == CaseSet::full && variant.empty() != is_heavy(shape)) || (variant == "tile" && shape.value_dim > 64);
    };
    for (const Shape& shape : shapes_of(set)) {
      if (left_out(shape)) continue;
      Result<CaseResult> result = run_one(backend, variant, shape);
      if (!result && !variant.empty() && result.error().code == ErrorCode::unsupported) continue;  // not a shape of this variant
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
    for (const Split& split : splits_of(set)) {
      if (left_out(split.shape)) continue;
      Result<CaseResult> result = run_split(backend, variant, split.shape, split.sizes);
      if (!result && !variant.empty() && result.error().code == ErrorCode::unsupported) continue;
      results.push_back(result ? *result : failed(kOperation, variant, name_of(split.shape) + ", same bits in calls", result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
