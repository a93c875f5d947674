// Known-answer cases of LayerNorm: odd widths, strides, in place, a mean far from zero.
#include <string>

#include "kernels/layer_norm/layer_norm_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace layer_norm_cases {

constexpr const char* kOperation = "layer_norm";

struct Shape {
  uint32_t rows, cols;
  uint32_t gap = 0;  // extra elements between rows
  bool in_place = false;
  float size = 1;   // of the values
  float shift = 0;  // their mean
};

bool whole_quads(const Shape& shape) { return shape.cols % 4 == 0 && shape.gap % 4 == 0; }

std::string name_of(const Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " gap " + std::to_string(shape.gap) + " size " +
         std::to_string(shape.size) + " around " + std::to_string(shape.shift) + (shape.in_place ? " in place" : "");
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  Random random(shape.rows * 31 + shape.cols);
  const std::vector<float> values = random.vector(size_t{shape.rows} * shape.cols, shape.shift - shape.size, shape.shift + shape.size);
  const std::vector<float> weight = random.vector(shape.cols, -2, 2), bias = random.vector(shape.cols);
  const uint32_t stride = shape.cols + shape.gap;
  CHORUS_ASSIGN(StridedInput x, make_input(backend, values, shape.rows, shape.cols, stride, 4));
  CHORUS_ASSIGN(auto weight_buffer, upload(backend, weight));
  CHORUS_ASSIGN(auto bias_buffer, upload(backend, bias));
  CHORUS_ASSIGN(GuardedOutput output, shape.in_place ? make_output(backend, shape.rows, shape.cols, stride, values)
                                                     : make_output(backend, shape.rows, shape.cols, stride));
  const float epsilon = 1e-6f;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->layer_norm(
      {shape.in_place ? compute::View(output.view) : x.view, weight_buffer.get(), bias_buffer.get(), epsilon, output.view}));
  CHORUS_TRY(batch->submit());
  const kernels::LayerNormReference reference =
      kernels::layer_norm_reference(values, shape.rows, shape.cols, weight, bias, static_cast<double>(epsilon));
  // The mean is a tree of sums over at most 256 lanes; an error d of it moves the variance by d^2 alone. The variance has no cancellation.
  // Then a difference, sqrt, division, two products and a sum: all relative to the magnitudes.
  const double roundings = 24 + shape.cols / 64.0;
  const auto tolerance = [&](size_t i) { return roundings * 0x1p-24 * reference.magnitude[i] + 1e-37; };
  return compare(backend, output, reference.out, tolerance, kOperation, variant, name_of(shape));
}

}  // namespace layer_norm_cases

std::vector<CaseResult> run_layer_norm_cases(compute::Backend& backend, CaseSet set) {
  using namespace layer_norm_cases;
  std::vector<Shape> shapes = {{3, 64}, {5, 128, 4, true}, {2, 37, 1}, {4, 35, 1, true}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(), {{0, 8},
                                 {1, 1},
                                 {1, 4},
                                 {7, 257},
                                 {2, 5120},
                                 {3, 2052, 8, true},
                                 {3, 128, 0, false, 1e15f},
                                 {3, 128, 0, false, 1e-15f},
                                 {3, 1000, 0, false, 1, 100},
                                 {3, 999, 0, false, 1, -1000},
                                 {3, 128, 0, false, 0, 3}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      if (variant == "vec4" && !whole_quads(shape)) continue;
      Result<CaseResult> result = run_one(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
