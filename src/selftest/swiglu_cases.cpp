// Known-answer cases of SwiGLU: odd widths, strides, large gates, past a grid dimension.
#include <string>

#include "kernels/swiglu/swiglu_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace swiglu_cases {

constexpr const char* kOperation = "swiglu";

struct Shape {
  uint32_t rows, width;
  uint32_t gap, offset;
  float size = 6;  // of the gates
};

bool whole_quads(const Shape& shape) { return shape.width % 4 == 0 && shape.gap % 4 == 0 && shape.offset % 4 == 0; }

std::string name_of(const Shape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.width) + " gap " + std::to_string(shape.gap) + " offset " +
         std::to_string(shape.offset) + " size " + std::to_string(shape.size);
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  Random random(shape.rows * 37 + shape.width);
  const std::vector<float> values = random.vector(size_t{shape.rows} * 2 * shape.width, -shape.size, shape.size);
  CHORUS_ASSIGN(StridedInput in, make_input(backend, values, shape.rows, 2 * shape.width, 2 * shape.width + shape.gap, shape.offset));
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, shape.rows, shape.width, shape.width + shape.gap));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->swiglu({in.view, output.view}));
  CHORUS_TRY(batch->submit());
  const std::vector<double> expected = kernels::reference_swiglu(values, shape.rows, shape.width);
  // WGSL allows exp(x) an error of 3 + 2|x| units in the last place; then a sum, a division, two products. Where exp(gate) leaves the
  // normal numbers it may become zero.
  const auto tolerance = [&](size_t i) {
    const size_t at = i / shape.width * 2 * shape.width + i % shape.width;
    const double gate = values[at], up = values[at + shape.width];
    return 0x1p-23 * (8 + 2 * std::abs(gate)) * std::abs(expected[i]) + 0x1p-125 * std::abs(gate * up) + 1e-37;
  };
  return compare(backend, output, expected, tolerance, kOperation, variant, name_of(shape));
}

}  // namespace swiglu_cases

std::vector<CaseResult> run_swiglu_cases(compute::Backend& backend, CaseSet set) {
  using namespace swiglu_cases;
  std::vector<Shape> shapes = {{3, 64, 0, 0}, {5, 36, 4, 8}, {2, 37, 1, 3}, {4, 64, 0, 0, 500}};
  if (set == CaseSet::full) {
    // Grids past one dimension would take 800 MB: tests/kernel_limits_webgpu_test.cpp lowers the limit instead.
    shapes.insert(
        shapes.end(),
        {{0, 8, 0, 0}, {1, 1, 0, 0}, {1, 4, 0, 0}, {7, 257, 0, 0}, {3, 3584, 0, 0}, {2000, 300, 0, 0}, {9, 101, 5, 2}, {3, 256, 0, 0, 0}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      if (variant.starts_with("vec4") && !whole_quads(shape)) continue;
      Result<CaseResult> result = run_one(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
