// Known-answer cases of query and key norm with RoPE: partial rotation, keys alone, keys and values in one buffer, queries, keys and values
// of one product, norms of whole rows, past a grid dimension.
#include <string>

#include "kernels/qk_norm_rope/qk_norm_rope_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace qk_norm_rope_cases {

using Norm = compute::QueryKeyNorm;

constexpr const char* kOperation = "qk_norm_rope";

struct Shape {
  uint32_t query_heads, kv_heads, head_dim, rotary_dim, rows;
  uint32_t gap, offset;
  bool queries = true;
  bool one_cache = false;  // k_out and v_out are parts of one buffer
  kernels::QkNormRopeForm form = {};
  bool stacked = false;  // q_gate and kv are columns of one matrix
};

bool whole_quads(const Shape& shape) {
  return shape.head_dim % 4 == 0 && shape.rotary_dim % 8 == 0 && shape.gap % 4 == 0 && shape.offset % 4 == 0;
}

std::string name_of(const Shape& shape) {
  return std::to_string(shape.rows) + " rows, heads " + std::to_string(shape.query_heads) + "/" + std::to_string(shape.kv_heads) + " x " +
         std::to_string(shape.head_dim) + " rotary " + std::to_string(shape.rotary_dim) + " gap " + std::to_string(shape.gap) + " offset " +
         std::to_string(shape.offset) + (shape.queries ? "" : ", keys only") + (shape.one_cache ? ", one cache" : "") +
         (shape.form.gated ? "" : ", no gate") + (shape.form.norm == Norm::none ? ", no norm" : "") +
         (shape.form.norm == Norm::whole_row ? ", norm of rows" : "") +
         (shape.form.weight == compute::NormWeight::plain ? ", plain weight" : "") + (shape.stacked ? ", one input" : "");
}

struct Data {
  std::vector<float> q_gate, kv, q_weight, k_weight, cosine, sine;
};

Data make_data(const Shape& shape) {
  Random random(shape.rows * 43 + shape.head_dim);
  const size_t rows = shape.rows, dim = shape.head_dim;
  Data data;
  data.q_gate = random.vector(rows * shape.query_heads * (shape.form.gated ? 2 : 1) * dim, -3, 3);
  data.kv = random.vector(rows * shape.kv_heads * 2 * dim, -3, 3);
  const bool whole_row = shape.form.norm == Norm::whole_row;
  data.q_weight = random.vector(dim * (whole_row ? shape.query_heads : 1), -0.5f, 1);
  data.k_weight = random.vector(dim * (whole_row ? shape.kv_heads : 1), -0.5f, 1);
  for (size_t i = 0; i < rows * (shape.rotary_dim / 2); ++i) {
    const double angle = random.uniform(0, 6.28f);
    data.cosine.push_back(static_cast<float>(std::cos(angle)));
    data.sine.push_back(static_cast<float>(std::sin(angle)));
  }
  return data;
}

struct Projections {
  std::vector<StridedInput> owners;
  compute::View q_gate, kv;
};
Result<Projections> make_projections(compute::Backend& backend, const Shape& shape, const Data& data) {
  const uint32_t kv_cols = 2 * shape.kv_heads * shape.head_dim, q_cols = shape.query_heads * (shape.form.gated ? 2 : 1) * shape.head_dim;
  Projections made;
  const auto add = [&](const std::vector<float>& values, uint32_t cols) -> Result<compute::View> {
    CHORUS_ASSIGN(StridedInput input, make_input(backend, values, shape.rows, cols, cols + shape.gap, shape.offset));
    made.owners.push_back(std::move(input));
    return made.owners.back().view;
  };
  if (!shape.stacked) {
    CHORUS_ASSIGN(made.q_gate, add(data.q_gate, q_cols));
    CHORUS_ASSIGN(made.kv, add(data.kv, kv_cols));
    return made;
  }
  std::vector<float> both;
  for (uint32_t row = 0; row < shape.rows; ++row) {
    both.insert(both.end(), data.q_gate.begin() + size_t{row} * q_cols, data.q_gate.begin() + size_t{row + 1} * q_cols);
    both.insert(both.end(), data.kv.begin() + size_t{row} * kv_cols, data.kv.begin() + size_t{row + 1} * kv_cols);
  }
  CHORUS_ASSIGN(made.q_gate, add(both, q_cols + kv_cols));
  made.kv = made.q_gate;
  made.q_gate.cols = q_cols;
  made.kv.cols = kv_cols;
  made.kv.offset += q_cols;
  return made;
}

// Two guarded buffers, or one whose first rows are the keys and whose last rows are the values.
struct KeyValueOutput {
  GuardedOutput keys, values;
};
Result<KeyValueOutput> make_key_value_output(compute::Backend& backend, const Shape& shape) {
  const uint32_t cols = shape.kv_heads * shape.head_dim;
  KeyValueOutput output;
  if (!shape.one_cache) {
    CHORUS_ASSIGN(output.keys, make_output(backend, shape.rows, cols, cols + shape.gap));
    CHORUS_ASSIGN(output.values, make_output(backend, shape.rows, cols, cols + shape.gap));
    return output;
  }
  CHORUS_ASSIGN(output.keys, make_output(backend, 2 * shape.rows, cols, cols + shape.gap));
  output.values = output.keys;
  output.keys.view.rows = output.values.view.rows = shape.rows;
  output.values.view.offset += static_cast<uint64_t>(shape.rows) * output.keys.view.stride;
  return output;
}

// The results of one case: queries, keys, values (or keys and values as one).
Result<std::vector<CaseResult>> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const Data data = make_data(shape);
  const uint32_t dim = shape.head_dim, rows = shape.rows, half = shape.rotary_dim / 2;
  const uint32_t q_cols = shape.query_heads * dim;
  CHORUS_ASSIGN(const Projections projections, make_projections(backend, shape, data));
  CHORUS_ASSIGN(StridedInput cosine, make_input(backend, data.cosine, rows, half, half + shape.gap, shape.offset));
  CHORUS_ASSIGN(StridedInput sine, make_input(backend, data.sine, rows, half, half + shape.gap, shape.offset));
  CHORUS_ASSIGN(auto q_weight, upload(backend, data.q_weight));
  CHORUS_ASSIGN(auto k_weight, upload(backend, data.k_weight));
  CHORUS_ASSIGN(GuardedOutput q_out, make_output(backend, rows, q_cols, q_cols + shape.gap));
  CHORUS_ASSIGN(KeyValueOutput kv_out, make_key_value_output(backend, shape));
  const float epsilon = 1e-6f;
  compute::QkNormRopeArgs args;
  args.shape = {shape.query_heads, shape.kv_heads, dim};
  args.rotary_dim = shape.rotary_dim;
  args.epsilon = epsilon;
  args.kv = projections.kv;
  args.gated = shape.form.gated;
  args.norm = shape.form.norm;
  args.form = shape.form.weight;
  if (shape.form.norm != Norm::none) {
    args.q_weight = q_weight.get();
    args.k_weight = k_weight.get();
  }
  args.cosine = cosine.view;
  args.sine = sine.view;
  args.k_out = kv_out.keys.view;
  args.v_out = kv_out.values.view;
  if (shape.queries) {
    args.q_gate = projections.q_gate;
    args.q_out = q_out.view;
  }
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->qk_norm_rope(args));
  CHORUS_TRY(batch->submit());

  std::vector<double> q_size, k_size;
  const kernels::QkNormRopeReference expected = kernels::reference_qk_norm_rope(
      args.shape, shape.rotary_dim, epsilon, rows, shape.queries ? std::span<const float>(data.q_gate) : std::span<const float>(), data.kv,
      data.q_weight, data.k_weight, data.cosine, data.sine, &q_size, &k_size, shape.form);
  // As for rms_norm, with two more products and a sum for the rotation.
  const auto tolerance_of = [](const std::vector<double>& sizes) { return [&sizes](size_t i) { return 20 * 0x1p-23 * sizes[i] + 1e-37; }; };
  const std::string name = name_of(shape);
  std::vector<CaseResult> results;
  if (shape.queries) results.push_back(compare(backend, q_out, expected.q, tolerance_of(q_size), kOperation, variant, name + " q"));
  if (!shape.one_cache) {
    results.push_back(compare(backend, kv_out.keys, expected.k, tolerance_of(k_size), kOperation, variant, name + " k"));
    results.push_back(compare(
        backend, kv_out.values, expected.v, [](size_t) { return 0.0; }, kOperation, variant, name + " v"));
    return results;
  }
  std::vector<double> both = expected.k, both_size = k_size;
  both.insert(both.end(), expected.v.begin(), expected.v.end());
  both_size.resize(both.size(), 0);
  GuardedOutput whole = kv_out.keys;
  whole.view.rows = 2 * rows;
  results.push_back(compare(backend, whole, both, tolerance_of(both_size), kOperation, variant, name + " kv"));
  return results;
}

}  // namespace qk_norm_rope_cases

std::vector<CaseResult> run_qk_norm_rope_cases(compute::Backend& backend, CaseSet set) {
  using namespace qk_norm_rope_cases;
  std::vector<Shape> shapes = {{4, 2, 64, 16, 5, 0, 0},
                               {8, 2, 256, 64, 3, 4, 8},
                               {2, 1, 32, 32, 7, 0, 0, false},
                               {2, 1, 18, 10, 4, 1, 3},
                               {4, 2, 64, 64, 5, 8, 4, true, false, {false, Norm::per_head, compute::NormWeight::plain}},
                               {4, 2, 32, 16, 3, 0, 0, true, false, {false, Norm::none, compute::NormWeight::plain}, true},
                               {6, 2, 32, 32, 6, 4, 8, true, false, {false, Norm::whole_row, compute::NormWeight::plain}, true},
                               {3, 3, 18, 10, 4, 1, 3, true, false, {false, Norm::whole_row, compute::NormWeight::one_plus}},
                               {4, 1, 64, 16, 5, 4, 0, true, false, {}, true}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(), {{2, 2, 16, 8, 0, 0, 0},
                                 {1, 1, 2, 2, 1, 0, 0},
                                 {4, 1, 128, 128, 33, 0, 0},
                                 {6, 2, 64, 16, 9, 0, 0, true, true},
                                 {3, 3, 20, 6, 11, 5, 1, true, true},
                                 {2, 2, 32, 8, 65, 0, 0, false, true},
                                 {16, 16, 128, 128, 1, 0, 0, true, false, {false, Norm::whole_row, compute::NormWeight::plain}, true},
                                 {3, 1, 18, 10, 9, 1, 3, true, false, {}, true},
                                 {16, 1, 4, 2, 35001, 0, 0}});  // 70,002 workgroups for the queries
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      if (variant.starts_with("vec4") && !whole_quads(shape)) continue;
      if (shape.rows > 10000 && backend.info().software && !variant.empty()) continue;  // slow there: only the backend's own choice
      Result<std::vector<CaseResult>> some = run_one(backend, variant, shape);
      if (some)
        results.insert(results.end(), some->begin(), some->end());
      else
        results.push_back(failed(kOperation, variant, name_of(shape), some.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
