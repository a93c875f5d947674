// Known-answer cases of rope in both forms: part of a head, all of it, odd sizes, strides, in place.
#include <cmath>
#include <string>

#include "kernels/rope/rope_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace rope_cases {

constexpr const char* kOperation = "rope";

struct Shape {
  uint32_t rows, heads, head_dim, first, rotary_dim;
  uint32_t gap = 0;  // extra elements between rows
  bool in_place = false;
};

std::string name_of(const Shape& shape, compute::RopeForm form) {
  return std::to_string(shape.rows) + " rows x " + std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_dim) + ", " +
         std::to_string(shape.rotary_dim) + " from " + std::to_string(shape.first) + ", gap " + std::to_string(shape.gap) +
         (form == compute::RopeForm::halves ? " halves" : " pairs") + (shape.in_place ? " in place" : "");
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape, compute::RopeForm form) {
  Random random(shape.rows * 31 + shape.heads * 7 + shape.head_dim);
  const uint32_t cols = shape.heads * shape.head_dim, stride = cols + shape.gap, half = shape.rotary_dim / 2;
  const std::vector<float> values = random.vector(size_t{shape.rows} * cols, -3, 3);
  std::vector<float> cosine, sine;
  for (size_t i = 0; i < size_t{shape.rows} * half; ++i) {
    const float angle = random.uniform(-9, 9);
    cosine.push_back(std::cos(angle));
    sine.push_back(std::sin(angle));
  }
  CHORUS_ASSIGN(StridedInput x, make_input(backend, values, shape.rows, cols, stride, 3));
  CHORUS_ASSIGN(StridedInput cosine_input, make_input(backend, cosine, shape.rows, half, half + shape.gap, 1));
  CHORUS_ASSIGN(StridedInput sine_input, make_input(backend, sine, shape.rows, half, half, 2));
  CHORUS_ASSIGN(GuardedOutput output,
                shape.in_place ? make_output(backend, shape.rows, cols, stride, values) : make_output(backend, shape.rows, cols, stride));
  compute::RopeArgs args;
  args.heads = shape.heads;
  args.head_dim = shape.head_dim;
  args.first = shape.first;
  args.rotary_dim = shape.rotary_dim;
  args.form = form;
  args.x = shape.in_place ? compute::View(output.view) : x.view;
  args.cosine = cosine_input.view;
  args.sine = sine_input.view;
  args.out = output.view;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->rope(args));
  CHORUS_TRY(batch->submit());
  const kernels::RopeReference reference = kernels::rope_reference(values, cosine, sine, shape.rows, args);
  // Two products and a sum, a rounding each.
  const auto tolerance = [&](size_t i) { return 2 * 0x1p-24 * reference.magnitude[i]; };
  return compare(backend, output, reference.out, tolerance, kOperation, variant, name_of(shape, form));
}

}  // namespace rope_cases

std::vector<CaseResult> run_rope_cases(compute::Backend& backend, CaseSet set) {
  using namespace rope_cases;
  std::vector<Shape> shapes = {{3, 4, 16, 0, 16}, {5, 3, 24, 8, 16, 2}, {4, 2, 32, 8, 16, 0, true}, {2, 3, 22, 0, 6, 1, true}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(), {{0, 2, 8, 0, 8},
                                 {1, 1, 2, 0, 2},
                                 {1, 1, 5, 1, 2},
                                 {7, 3, 31, 3, 26, 3},
                                 {65, 8, 128, 0, 128},
                                 {33, 5, 192, 128, 64, 4, true},
                                 {9, 1, 576, 512, 64},
                                 {40000, 2, 4, 2, 2}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      for (const compute::RopeForm form : {compute::RopeForm::halves, compute::RopeForm::pairs}) {
        Result<CaseResult> result = run_one(backend, variant, shape, form);
        results.push_back(result ? *result : failed(kOperation, variant, name_of(shape, form), result.error()));
      }
    }
  });
  return results;
}

}  // namespace chorus::selftest
