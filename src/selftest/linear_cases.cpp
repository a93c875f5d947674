// Known-answer cases of linear: odd shapes, offsets, strides, bias, add, a norm of x, and NaN all around x.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/embed/embed_reference.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/rms_norm/rms_norm_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace linear_cases {

constexpr const char* kOperation = "linear";

struct Shape {
  uint32_t rows, cols, depth;
  uint32_t x_offset = 0, x_gap = 0, out_gap = 0;
  bool bias = false, add = false;
  bool norm = false;
  compute::NormWeight form = compute::NormWeight::plain;
};

constexpr float kEpsilon = 1e-5f;

std::string name_of(const Shape& shape, DType dtype) {
  return std::string(dtype_name(dtype)) + " " + std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " x " +
         std::to_string(shape.depth) + ", x offset " + std::to_string(shape.x_offset) + " gap " + std::to_string(shape.x_gap) +
         ", out gap " + std::to_string(shape.out_gap) + (shape.bias ? ", bias" : "") + (shape.add ? ", add" : "") +
         (!shape.norm                                ? ""
          : shape.form == compute::NormWeight::plain ? ", norm"
                                                     : ", norm of 1 + w");
}

// Values whose 16-bit forms are normal numbers or zero: reading a subnormal half may give zero (WGSL, unpack2x16float).
std::vector<float> weight_values(Random& random, size_t count) {
  std::vector<float> values = random.vector(count);
  for (float& value : values) value = std::abs(value) < 0x1p-12f ? 0.0f : value;
  return values;
}

std::vector<double> widened(std::span<const float> values) { return {values.begin(), values.end()}; }

std::vector<double> rounded(std::span<const float> values, DType dtype) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const float value : values) result.push_back(kernels::round_to_dtype(value, dtype));
  return result;
}

// x with NaN before it, between its rows and after it: nothing outside the view may reach a result.
std::vector<float> surrounded_by_nan(std::span<const float> x, const Shape& shape) {
  const size_t stride = shape.depth + shape.x_gap;
  std::vector<float> content(shape.x_offset + stride * shape.rows + 16, std::numeric_limits<float>::quiet_NaN());
  for (size_t row = 0; row < shape.rows; ++row) {
    std::copy_n(x.begin() + static_cast<ptrdiff_t>(row * shape.depth), shape.depth,
                content.begin() + static_cast<ptrdiff_t>(shape.x_offset + row * stride));
  }
  return content;
}

Result<std::vector<CaseResult>> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape, DType dtype) {
  Random random(shape.rows * 131 + shape.cols * 17 + shape.depth);
  const std::vector<float> x = random.vector(size_t{shape.rows} * shape.depth);
  const std::vector<float> weight = weight_values(random, size_t{shape.cols} * shape.depth);
  const std::vector<float> bias = random.vector(shape.bias ? shape.cols : 0);
  const std::vector<float> initial = random.vector(shape.add ? size_t{shape.rows} * shape.cols : 0);

  const std::vector<float> norm_weight = random.vector(shape.norm ? shape.depth : 0, -0.5f, 1);

  CHORUS_ASSIGN(auto x_buffer, upload(backend, surrounded_by_nan(x, shape)));
  CHORUS_ASSIGN(auto device_weight, upload_weight(backend, weight, shape.cols, shape.depth, dtype));
  std::shared_ptr<compute::Buffer> bias_buffer;
  if (shape.bias) {
    CHORUS_ASSIGN(bias_buffer, upload(backend, bias));
  }
  const uint32_t out_stride = shape.cols + shape.out_gap;
  CHORUS_ASSIGN(GuardedOutput output, shape.add ? make_output(backend, shape.rows, shape.cols, out_stride, initial)
                                                : make_output(backend, shape.rows, shape.cols, out_stride));
  std::shared_ptr<compute::Buffer> norm_buffer;
  GuardedOutput normed;
  compute::LinearArgs args;
  if (shape.norm) {
    CHORUS_ASSIGN(norm_buffer, upload(backend, norm_weight));
    CHORUS_ASSIGN(normed, make_output(backend, shape.rows, shape.depth, shape.depth + shape.x_gap));
    args.norm = {norm_buffer.get(), kEpsilon, shape.form, normed.view};
  }
  args.x = {x_buffer.get(), shape.x_offset, shape.rows, shape.depth, shape.depth + shape.x_gap};
  args.weight = device_weight.get();
  args.bias = bias_buffer.get();
  args.out = output.view;
  args.store = shape.add ? compute::LinearStore::add : compute::LinearStore::overwrite;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->linear(args));
  CHORUS_TRY(batch->submit());

  const std::vector<double> rows =
      shape.norm ? kernels::reference_rms_norm(x, shape.rows, shape.depth, norm_weight, kEpsilon, shape.form) : widened(x);
  const kernels::LinearReference reference =
      kernels::linear_reference(rows, rounded(weight, dtype), widened(bias), widened(initial), shape.rows, shape.cols, shape.depth);
  // One rounding per product, per sum of two, for the bias and for the store, in any order (Higham 2002, section 3.1); 12 more for variants
  // that write each operand as two f16 terms: 2^-22 of each, and the product of the second terms left out; 16 for a norm, as in rms_norm.
  const double bound = (shape.depth + (shape.norm ? 32.0 : 16.0)) * 0x1p-24;
  std::vector<CaseResult> results{compare(
      backend, output, reference.out, [&](size_t index) { return bound * reference.magnitude[index]; }, kOperation, variant,
      name_of(shape, dtype))};
  if (shape.norm) {
    results.push_back(compare(
        backend, normed, rows, [&](size_t index) { return 16 * 0x1p-23 * std::abs(rows[index]) + 1e-37; }, kOperation, variant,
        name_of(shape, dtype) + " normed rows"));
  }
  return results;
}

std::vector<Shape> shapes_of(CaseSet set) {
  std::vector<Shape> shapes = {
      {3, 5, 7, 1, 2, 3, true, true},
      {37, 68, 100, 4, 4, 8, false, false},
      {70, 132, 200, 0, 0, 0, true, true},
      {1, 64, 256, 0, 0, 0, false, false, true},
      {7, 36, 1160, 4, 4, 4, true, true, true, compute::NormWeight::one_plus},
      {3, 5, 7, 1, 2, 3, true, false, true},
  };
  if (set != CaseSet::full) return shapes;
  const std::vector<Shape> more = {
      {0, 5, 4},
      {1, 1, 1},
      {1, 4, 4, 0, 0, 0, true, false},
      {2, 3, 4, 0, 0, 1, false, true},
      {8, 31, 1031, 3, 1, 0, true, false},
      {9, 257, 65, 0, 0, 1, false, true},  // one past a tile, one past the rows of the row variant
      {33, 65, 33, 5, 0, 2, true, false},  // one past a tile in every direction
      {65, 129, 17, 0, 3, 0, false, false},
      {129, 260, 36, 8, 4, 4, true, true},    // the same in whole vec4s
      {61, 64, 2053, 0, 0, 0, false, false},  // long sums
      {127, 128, 64, 0, 0, 0, false, true},   // exact tiles but for a row
      {0, 8, 16, 0, 0, 0, false, false, true},
      {3, 300, 2560, 0, 8, 0, true, false, true},
      {33, 64, 36, 0, 0, 0, false, false, true},
      {2, 262149, 3, 0, 0, 0, false, false},  // more workgroups than one grid dimension holds
      {2100, 9, 5, 0, 0, 0, false, false},    // more than one band of tile rows
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

}  // namespace linear_cases

std::vector<CaseResult> run_linear_cases(compute::Backend& backend, CaseSet set) {
  using namespace linear_cases;
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes_of(set)) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        // Only row variants make a norm themselves.
        if (shape.norm && !variant.empty() && !variant.starts_with("row")) continue;
        // Another size of the same text: software adapters, which compile a build for a second, run it in one type.
        if (variant == "row256" && backend.info().software && dtype != DType::f16) continue;
        Result<std::vector<CaseResult>> some = run_one(backend, variant, shape, dtype);
        if (some)
          results.insert(results.end(), some->begin(), some->end());
        else
          results.push_back(failed(kOperation, variant, name_of(shape, dtype), some.error()));
      }
    }
  });
  return results;
}

}  // namespace chorus::selftest
