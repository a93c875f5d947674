// Known-answer cases of attention: head groups, prefix and own keys in one buffer or two, several sequences, extreme scores.
#include <cstring>
#include <string>

#include "kernels/attention/attention_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace attention_cases {

constexpr const char* kOperation = "attention";

struct Shape {
  uint32_t query_heads, kv_heads, head_dim;
  uint32_t prefix;
  std::vector<uint32_t> lengths;  // of the sequences
  uint32_t gap = 0, offset = 0;   // of the strided inputs
  float score_size = 3;           // typical size of a score
  bool one_cache = true;          // own keys follow the prefix keys in one buffer
};

// Work that a software adapter does once, with the variant of the backend's choice.
bool is_heavy(const Shape& shape) {
  uint32_t rows = 0;
  for (const uint32_t length : shape.lengths) rows += length;
  return rows > 100 || shape.prefix > 100;
}

bool whole_quads(const Shape& shape) { return shape.gap % 4 == 0 && shape.offset % 4 == 0; }

std::string name_of(const Shape& shape) {
  std::string name = "heads " + std::to_string(shape.query_heads) + "/" + std::to_string(shape.kv_heads) + " x " +
                     std::to_string(shape.head_dim) + ", prefix " + std::to_string(shape.prefix) + ", own";
  for (const uint32_t length : shape.lengths) name += " " + std::to_string(length);
  return name + ", gap " + std::to_string(shape.gap) + ", offset " + std::to_string(shape.offset) + ", scores " +
         std::to_string(shape.score_size) + (shape.one_cache ? ", one cache" : "");
}

// Host inputs. Keys and values hold the prefix rows first, then the own rows.
struct Data {
  std::vector<compute::SequenceSpan> spans;
  std::vector<float> q, q_gate, keys, values;
};

Data make_data(const Shape& shape) {
  Data data;
  uint32_t rows = 0;
  for (const uint32_t length : shape.lengths) {
    data.spans.push_back({rows, length});
    rows += length;
  }
  Random random(rows * 47 + shape.prefix * 3 + shape.head_dim);
  const size_t q_cols = size_t{shape.query_heads} * shape.head_dim, kv_cols = size_t{shape.kv_heads} * shape.head_dim;
  // A dot product of head_dim products of uniforms in [-1, 1] has deviation sqrt(head_dim) / 3; the scale is head_dim^-0.5.
  data.q = random.vector(rows * q_cols, -3 * shape.score_size, 3 * shape.score_size);
  data.q_gate = random.vector(rows * q_cols * 2, -3, 3);
  data.keys = random.vector((shape.prefix + rows) * kv_cols);
  data.values = random.vector((shape.prefix + rows) * kv_cols);
  return data;
}

struct DeviceData {
  StridedInput q, q_gate, prefix_k, prefix_v, own_k, own_v;
  std::shared_ptr<compute::Buffer> spans;
  compute::Sequences sequences;
};

Status upload_keys(compute::Backend& backend, const Shape& shape, std::span<const float> rows, uint32_t own, StridedInput& prefix_view,
                   StridedInput& own_view) {
  const uint32_t cols = shape.kv_heads * shape.head_dim, stride = cols + shape.gap;
  if (shape.one_cache) {
    CHORUS_ASSIGN(StridedInput all, make_input(backend, rows, shape.prefix + own, cols, stride, shape.offset));
    prefix_view = own_view = all;
    prefix_view.view.rows = shape.prefix;
    own_view.view.rows = own;
    own_view.view.offset += uint64_t{shape.prefix} * stride;
    return {};
  }
  if (shape.prefix > 0) {
    CHORUS_ASSIGN(prefix_view, make_input(backend, rows.first(size_t{shape.prefix} * cols), shape.prefix, cols, stride, shape.offset));
  }
  CHORUS_ASSIGN(own_view, make_input(backend, rows.subspan(size_t{shape.prefix} * cols), own, cols, stride, shape.offset));
  return {};
}

Result<DeviceData> upload_data(compute::Backend& backend, const Shape& shape, const Data& data) {
  const uint32_t q_cols = shape.query_heads * shape.head_dim, rows = static_cast<uint32_t>(data.q.size() / q_cols);
  DeviceData device;
  CHORUS_ASSIGN(device.q, make_input(backend, data.q, rows, q_cols, q_cols + shape.gap, shape.offset));
  CHORUS_ASSIGN(device.q_gate, make_input(backend, data.q_gate, rows, 2 * q_cols, 2 * q_cols + shape.gap, shape.offset));
  CHORUS_TRY(upload_keys(backend, shape, data.keys, rows, device.prefix_k, device.own_k));
  CHORUS_TRY(upload_keys(backend, shape, data.values, rows, device.prefix_v, device.own_v));
  std::vector<uint32_t> pairs;
  for (const compute::SequenceSpan& span : data.spans) pairs.insert(pairs.end(), {span.start, span.length});
  CHORUS_ASSIGN(device.spans, upload_u32(backend, pairs));
  device.sequences.spans = data.spans;
  device.sequences.device = device.spans.get();
  return device;
}

float scale_of(const Shape& shape) { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }

Result<GuardedOutput> run_device(compute::Backend& backend, const Shape& shape, const Data& data) {
  CHORUS_ASSIGN(const DeviceData device, upload_data(backend, shape, data));
  const uint32_t q_cols = shape.query_heads * shape.head_dim;
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, device.q.view.rows, q_cols, q_cols + shape.gap));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->attention({{shape.query_heads, shape.kv_heads, shape.head_dim},
                               scale_of(shape),
                               device.q.view,
                               device.q_gate.view,
                               shape.prefix > 0 ? device.prefix_k.view : compute::View{},
                               shape.prefix > 0 ? device.prefix_v.view : compute::View{},
                               device.own_k.view,
                               device.own_v.view,
                               &device.sequences,
                               output.view}));
  CHORUS_TRY(batch->submit());
  return output;
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const Data data = make_data(shape);
  CHORUS_ASSIGN(const GuardedOutput output, run_device(backend, shape, data));
  const size_t prefix_values = size_t{shape.prefix} * shape.kv_heads * shape.head_dim;
  const std::span<const float> keys = data.keys, values = data.values;
  const kernels::AttentionReference expected = kernels::reference_attention({{shape.query_heads, shape.kv_heads, shape.head_dim},
                                                                             scale_of(shape),
                                                                             shape.prefix,
                                                                             data.spans,
                                                                             data.q,
                                                                             data.q_gate,
                                                                             keys.first(prefix_values),
                                                                             values.first(prefix_values),
                                                                             keys.subspan(prefix_values),
                                                                             values.subspan(prefix_values)});
  // The weighted sum: a rounding a key, of which sqrt(keys) remain; exp, sigmoid, two divisions and the merge of parts: a few.
  // The scores: a rounding a product; exp turns their absolute error, and its own of 2|x| units in the last place, into a relative one.
  const double keys_seen = shape.prefix + *std::max_element(shape.lengths.begin(), shape.lengths.end());
  const auto tolerance = [&](size_t i) {
    return 0x1p-23 * ((8 + std::sqrt(keys_seen) / 2) * expected.value_size[i] + 4 * expected.score_size[i]) + 1e-37;
  };
  return compare(backend, output, expected.out, tolerance, kOperation, variant, name_of(shape));
}

// Rows [first, first + count) of a matrix.
std::vector<float> rows_of(const std::vector<float>& values, size_t cols, size_t first, size_t count) {
  return {values.begin() + static_cast<ptrdiff_t>(first * cols), values.begin() + static_cast<ptrdiff_t>((first + count) * cols)};
}

// The batch restricted to one of its sequences.
Data alone(const Shape& shape, const Data& data, size_t sequence) {
  const compute::SequenceSpan& span = data.spans[sequence];
  const size_t q_cols = size_t{shape.query_heads} * shape.head_dim, kv_cols = size_t{shape.kv_heads} * shape.head_dim;
  Data one;
  one.spans = {{0, span.length}};
  one.q = rows_of(data.q, q_cols, span.start, span.length);
  one.q_gate = rows_of(data.q_gate, 2 * q_cols, span.start, span.length);
  const auto with_prefix = [&](const std::vector<float>& all) {
    std::vector<float> rows = rows_of(all, kv_cols, 0, shape.prefix);
    const std::vector<float> own = rows_of(all, kv_cols, shape.prefix + span.start, span.length);
    rows.insert(rows.end(), own.begin(), own.end());
    return rows;
  };
  one.keys = with_prefix(data.keys);
  one.values = with_prefix(data.values);
  return one;
}

// Every sequence gives the same bits alone as in the batch.
Result<CaseResult> run_alone_and_together(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const Data data = make_data(shape);
  const uint32_t q_cols = shape.query_heads * shape.head_dim;
  CHORUS_ASSIGN(const GuardedOutput together, run_device(backend, shape, data));
  CHORUS_ASSIGN(const std::vector<float> batch, download(backend, *together.buffer));
  CaseResult result{kOperation, variant, name_of(shape) + ", same bits alone", 0, 0, true, {}};
  for (size_t sequence = 0; sequence < data.spans.size(); ++sequence) {
    CHORUS_ASSIGN(const GuardedOutput single, run_device(backend, shape, alone(shape, data, sequence)));
    CHORUS_ASSIGN(const std::vector<float> content, download(backend, *single.buffer));
    const compute::SequenceSpan& span = data.spans[sequence];
    for (size_t row = 0; row < span.length; ++row) {
      const float* a = content.data() + single.view.offset + row * single.view.stride;
      const float* b = batch.data() + together.view.offset + (span.start + row) * together.view.stride;
      for (uint32_t col = 0; col < q_cols; ++col) {
        result.error = std::max(result.error, static_cast<double>(std::abs(a[col] - b[col])));
        if (std::memcmp(&a[col], &b[col], 4) == 0) continue;
        if (result.pass) {
          result.detail = "sequence " + std::to_string(sequence) + " row " + std::to_string(row) + " col " + std::to_string(col) +
                          ": alone " + std::to_string(a[col]) + ", in the batch " + std::to_string(b[col]);
        }
        result.pass = false;
      }
    }
  }
  return result;
}

std::vector<Shape> shapes_of(CaseSet set) {
  std::vector<Shape> shapes = {{4, 2, 32, 0, {5}}, {8, 2, 64, 31, {5, 1, 17}}, {4, 1, 256, 64, {3, 2}}, {2, 2, 16, 1, {7}, 3, 1}};
  if (set == CaseSet::quick) return shapes;
  const std::vector<uint32_t> ragged = {5, 1, 64, 17, 63, 2};
  shapes.insert(shapes.end(), {{2, 2, 4, 0, {1}},
                               {2, 1, 16, 0, {2}},
                               {4, 1, 32, 1, {1}},
                               {4, 2, 128, 0, {63}},
                               {4, 4, 64, 0, {64}},
                               {6, 2, 64, 31, {65}},
                               {6, 1, 20, 64, {130}},
                               {4, 1, 256, 0, {65}},
                               {2, 1, 256, 31, {64}, 4, 8, 3, false},
                               {4, 2, 32, 1000, ragged},
                               {4, 1, 16, 64, ragged, 5, 3, 3, false},
                               {2, 1, 32, 0, {600, 3}},     // one sequence of three parts, one of a single part
                               {2, 1, 16, 300, {1100, 1}},  // parts of the prefix and of the sequence
                               {2, 2, 8, 5000, {3}},        // parts of more than the least size
                               {4, 1, 64, 64, {33}, 0, 0, 1e3f},
                               {4, 2, 32, 300, {9, 70}, 0, 0, 1e5f},
                               {4, 2, 32, 31, {9}, 0, 0, 0}});
  return shapes;
}

}  // namespace attention_cases

std::vector<CaseResult> run_attention_cases(compute::Backend& backend, CaseSet set) {
  using namespace attention_cases;
  const Shape mixed = {4, 2, 32, 300, {5, 1, 40, 17, 600, 2}};
  const Shape without_prefix = {4, 1, 64, 0, {33, 1, 5}};
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes_of(set)) {
      if (variant.starts_with("tile") && !whole_quads(shape)) continue;
      if (backend.info().software && !variant.empty() && is_heavy(shape)) continue;
      Result<CaseResult> result = run_one(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
    for (const Shape& shape : {without_prefix, mixed}) {
      if (is_heavy(shape) && (set == CaseSet::quick || (backend.info().software && !variant.empty()))) continue;
      Result<CaseResult> result = run_alone_and_together(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape) + ", same bits alone", result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
