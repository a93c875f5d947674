// Known-answer cases of RMSNorm in both forms: odd widths, strides, tiny and huge values, past a grid dimension.
#include <string>

#include "kernels/rms_norm/rms_norm_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace rms_norm_cases {

constexpr const char* kOperation = "rms_norm";

struct Shape {
  uint32_t rows, cols;
  uint32_t gap;     // extra elements between rows
  uint32_t offset;  // of the input
  float size = 1;   // of the values
  bool in_place = false;
};

bool whole_quads(const Shape& shape) { return shape.cols % 4 == 0 && shape.gap % 4 == 0 && shape.offset % 4 == 0; }

std::string name_of(const Shape& shape, compute::NormWeight form) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " gap " + std::to_string(shape.gap) + " offset " +
         std::to_string(shape.offset) + " size " + std::to_string(shape.size) + (form == compute::NormWeight::plain ? " w" : " 1+w") +
         (shape.in_place ? " in place" : "");
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape, compute::NormWeight form) {
  Random random(shape.rows * 31 + shape.cols);
  const std::vector<float> values = random.vector(size_t{shape.rows} * shape.cols, -shape.size, shape.size);
  const std::vector<float> weight = random.vector(shape.cols, -0.9f, 2);
  CHORUS_ASSIGN(StridedInput x, make_input(backend, values, shape.rows, shape.cols, shape.cols + shape.gap, shape.offset));
  CHORUS_ASSIGN(auto weight_buffer, upload(backend, weight));
  const uint32_t stride = shape.cols + shape.gap;
  CHORUS_ASSIGN(GuardedOutput output, shape.in_place ? make_output(backend, shape.rows, shape.cols, stride, values)
                                                     : make_output(backend, shape.rows, shape.cols, stride));
  const float epsilon = 1e-6f;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->rms_norm({shape.in_place ? compute::View(output.view) : x.view, weight_buffer.get(), epsilon, form, output.view}));
  CHORUS_TRY(batch->submit());
  const std::vector<double> expected = kernels::reference_rms_norm(values, shape.rows, shape.cols, weight, epsilon, form);
  // Relative: the sum of squares has no cancellation (a few roundings deep in a tree or lanes), then sqrt, division, three products.
  const auto tolerance = [&](size_t i) { return 16 * 0x1p-23 * std::abs(expected[i]) + 1e-37; };
  return compare(backend, output, expected, tolerance, kOperation, variant, name_of(shape, form));
}

}  // namespace rms_norm_cases

std::vector<CaseResult> run_rms_norm_cases(compute::Backend& backend, CaseSet set) {
  using namespace rms_norm_cases;
  std::vector<Shape> shapes = {{3, 64, 0, 0}, {5, 1024, 4, 8}, {2, 37, 1, 3}, {3, 128, 4, 0, 1, true}, {4, 37, 1, 0, 1, true}};
  if (set == CaseSet::full) {
    // 130,944 rows: 8 rows x 1023 tokens x 16 heads, past one grid dimension.
    shapes.insert(shapes.end(), {{0, 8, 0, 0},
                                 {1, 1, 0, 0},
                                 {1, 4, 0, 0},
                                 {7, 257, 0, 0},
                                 {65, 256, 12, 4},
                                 {2, 5120, 0, 0},
                                 {3, 513, 0, 1},
                                 {4, 516, 0, 0},
                                 {130944, 16, 0, 0},
                                 {3, 1024, 0, 0, 1, true},
                                 {3, 128, 0, 0, 1e15f},
                                 {3, 128, 0, 0, 1e-15f},
                                 {3, 128, 0, 0, 0}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      if (variant.starts_with("vec4") && !whole_quads(shape)) continue;
      for (const compute::NormWeight form : {compute::NormWeight::plain, compute::NormWeight::one_plus}) {
        // Slow on software adapters: one form, and there only the backend's own choice.
        const bool heavy = shape.rows > 100000;
        if (heavy && (form == compute::NormWeight::plain || (backend.info().software && !variant.empty()))) continue;
        Result<CaseResult> result = run_one(backend, variant, shape, form);
        results.push_back(result ? *result : failed(kOperation, variant, name_of(shape, form), result.error()));
      }
    }
  });
  return results;
}

}  // namespace chorus::selftest
