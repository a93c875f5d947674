// Known-answer cases of head_linear: odd sizes, gaps between heads, heads that share a block of the weight, few and many rows; and the rows
// of a call must not change each other's bits.
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/embed/embed_reference.h"
#include "kernels/head_linear/head_linear_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace head_linear_cases {

constexpr const char* kOperation = "head_linear";

struct Shape {
  uint32_t rows, heads, cols, depth;
  uint32_t head_gap = 0, row_gap = 0, x_offset = 0;
};

std::string name_of(const Shape& shape, DType dtype) {
  return std::string(dtype_name(dtype)) + " " + std::to_string(shape.rows) + " rows, " + std::to_string(shape.heads) + " heads of " +
         std::to_string(shape.cols) + " x " + std::to_string(shape.depth) + ", gaps " + std::to_string(shape.head_gap) + " " +
         std::to_string(shape.row_gap) + ", x offset " + std::to_string(shape.x_offset);
}

bool whole_quads(const Shape& shape) {
  return shape.depth % 4 == 0 && shape.head_gap % 4 == 0 && shape.row_gap % 4 == 0 && shape.x_offset % 4 == 0;
}

struct Inputs {
  std::vector<float> x, weight;
  StridedInput x_input;
  std::shared_ptr<compute::Weight> device_weight;
  uint32_t head_stride = 0, x_cols = 0;
};

Result<Inputs> make_inputs(compute::Backend& backend, const Shape& shape, DType dtype) {
  Random random(shape.rows * 131 + shape.cols * 17 + shape.depth);
  Inputs inputs;
  inputs.head_stride = shape.depth + shape.head_gap;
  inputs.x_cols = (shape.heads - 1) * inputs.head_stride + shape.depth;
  inputs.x = random.vector(size_t{shape.rows} * inputs.x_cols);
  for (size_t i = 0; i < inputs.x.size(); ++i) {
    if (i % inputs.x_cols % inputs.head_stride >= shape.depth) inputs.x[i] = std::nanf("");  // between the heads
  }
  inputs.weight = random.vector(size_t{shape.heads} * shape.cols * shape.depth);
  for (float& value : inputs.weight) value = std::abs(value) < 0x1p-12f ? 0.0f : value;  // subnormal halves may read as zero
  CHORUS_ASSIGN(inputs.x_input, make_input(backend, inputs.x, shape.rows, inputs.x_cols, inputs.x_cols + shape.row_gap, shape.x_offset));
  CHORUS_ASSIGN(inputs.device_weight, upload_weight(backend, inputs.weight, shape.heads * shape.cols, shape.depth, dtype));
  return inputs;
}

Status multiply(compute::Backend& backend, const Shape& shape, const Inputs& inputs, const compute::MutableView& out, uint32_t first_row) {
  compute::HeadLinearArgs args;
  args.heads = shape.heads;
  args.x_head_stride = inputs.head_stride;
  args.x = inputs.x_input.view;
  args.x.offset += uint64_t{first_row} * args.x.stride;
  args.x.rows = out.rows;
  args.weight = inputs.device_weight.get();
  args.out = out;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->head_linear(args));
  return batch->submit();
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape, DType dtype) {
  CHORUS_ASSIGN(const Inputs inputs, make_inputs(backend, shape, dtype));
  const uint32_t out_cols = shape.heads * shape.cols;
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, shape.rows, out_cols, out_cols + shape.row_gap));
  CHORUS_TRY(multiply(backend, shape, inputs, output.view, 0));
  std::vector<double> weight;
  for (const float value : inputs.weight) weight.push_back(kernels::round_to_dtype(value, dtype));
  const kernels::HeadLinearReference reference = kernels::head_linear_reference(
      inputs.x, weight, {shape.rows, shape.heads, shape.cols, shape.depth, inputs.x_cols, inputs.head_stride});
  // One rounding per product, per sum of two and for the store, in any order (Higham 2002, section 3.1).
  const double bound = (shape.depth + 4.0) * 0x1p-24;
  return compare(
      backend, output, reference.out, [&](size_t index) { return bound * reference.magnitude[index]; }, kOperation, variant,
      name_of(shape, dtype));
}

// The bits of every row alone, under the backend's own choice of variant, against those of all rows together.
Result<CaseResult> run_rows_alone(compute::Backend& backend, const Shape& shape, DType dtype) {
  CHORUS_ASSIGN(const Inputs inputs, make_inputs(backend, shape, dtype));
  const uint32_t out_cols = shape.heads * shape.cols;
  CHORUS_ASSIGN(auto all_buffer, backend.create_buffer(uint64_t{shape.rows} * out_cols * 4, "all rows"));
  CHORUS_ASSIGN(auto one_buffer, backend.create_buffer(uint64_t{out_cols} * 4, "one row"));
  CHORUS_TRY(multiply(backend, shape, inputs, {all_buffer.get(), 0, shape.rows, out_cols, out_cols}, 0));
  CHORUS_ASSIGN(const std::vector<float> all, download(backend, *all_buffer));
  CaseResult result{kOperation, "", name_of(shape, dtype) + ", each alone", 0, 0, true, {}};
  for (uint32_t row = 0; row < shape.rows; row += 1 + row / 8 * 7) {
    CHORUS_TRY(multiply(backend, shape, inputs, {one_buffer.get(), 0, 1, out_cols, out_cols}, row));
    CHORUS_ASSIGN(const std::vector<float> one, download(backend, *one_buffer));
    if (std::memcmp(one.data(), all.data() + size_t{row} * out_cols, one.size() * sizeof(float)) == 0) continue;
    result.pass = false;
    result.detail = "row " + std::to_string(row) + " has other bits alone than with the others";
  }
  return result;
}

// Software adapters compile each build for a second or two: odd layouts and single rows run in one type there, tiles in two.
bool is_left_out(const compute::Backend& backend, const std::string& variant, const Shape& shape, DType dtype) {
  if (!backend.info().software || dtype == DType::f16) return false;
  const bool tiles = variant == "tile" || (variant.empty() && shape.rows > 16);
  return !whole_quads(shape) || shape.rows == 1 || (tiles && dtype == DType::bf16);
}

std::vector<Shape> shapes_of(CaseSet set) {
  std::vector<Shape> shapes = {{3, 3, 40, 36, 4}, {2, 4, 7, 13, 3, 1, 2}, {20, 2, 33, 70, 2, 2, 2}};
  if (set != CaseSet::full) return shapes;
  const std::vector<Shape> more = {
      {0, 2, 4, 8},    {1, 1, 1, 1},    {1, 3, 128, 64, 64}, {8, 2, 65, 129, 0, 3}, {17, 5, 31, 30, 1}, {65, 2, 66, 40, 8, 0, 4},
      {1, 2, 5, 1030}, {70, 2, 8, 300},
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

}  // namespace head_linear_cases

std::vector<CaseResult> run_head_linear_cases(compute::Backend& backend, CaseSet set) {
  using namespace head_linear_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes_of(set)) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        if (is_left_out(backend, variant, shape, dtype)) continue;
        Result<CaseResult> result = run_one(backend, variant, shape, dtype);
        results.push_back(result ? *result : failed(kOperation, variant, name_of(shape, dtype), result.error()));
      }
    }
  });
  for (const Shape& shape : {Shape{5, 2, 40, 100, 4}, Shape{70, 2, 70, 260}, Shape{12, 3, 9, 37, 1, 1, 1}}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      if (is_left_out(backend, "", shape, dtype)) continue;
      Result<CaseResult> result = run_rows_alone(backend, shape, dtype);
      results.push_back(result ? *result : failed(kOperation, "", name_of(shape, dtype), result.error()));
    }
  }
  return results;
}

}  // namespace chorus::selftest
