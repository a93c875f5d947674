// Known-answer cases of gather_rows: strided views, odd widths, more rows than one grid dimension holds workgroups.
#include <string>
#include <utility>

#include "kernels/gather_rows/gather_rows_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace gather_rows_cases {

constexpr const char* kOperation = "gather_rows";

struct Shape {
  uint32_t x_rows, out_rows, cols;
  uint32_t gap;  // extra columns between rows of x and out
};

std::string name_of(const Shape& shape) {
  return std::to_string(shape.out_rows) + " of " + std::to_string(shape.x_rows) + " rows x " + std::to_string(shape.cols) + ", gap " +
         std::to_string(shape.gap);
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  Random random(shape.out_rows * 131 + shape.cols);
  const std::vector<float> x = random.vector(size_t{shape.x_rows} * shape.cols);
  std::vector<uint32_t> indices(shape.out_rows);
  for (uint32_t& index : indices) index = static_cast<uint32_t>(random.next() % shape.x_rows);
  if (!indices.empty()) indices.back() = shape.x_rows - 1;
  const uint32_t stride = shape.cols + shape.gap;
  std::vector<float> spread(size_t{5} + size_t{shape.x_rows} * stride, kSentinel);  // the view starts at element 5
  for (uint32_t row = 0; row < shape.x_rows; ++row) {
    std::copy_n(x.begin() + static_cast<ptrdiff_t>(size_t{row} * shape.cols), shape.cols,
                spread.begin() + 5 + static_cast<ptrdiff_t>(size_t{row} * stride));
  }
  CHORUS_ASSIGN(auto x_buffer, upload(backend, spread));
  CHORUS_ASSIGN(auto index_buffer, upload_u32(backend, indices));
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, shape.out_rows, shape.cols, stride));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->gather_rows({{x_buffer.get(), 5, shape.x_rows, shape.cols, stride}, index_buffer.get(), output.view}));
  CHORUS_TRY(batch->submit());
  const std::vector<double> expected = kernels::gather_rows_reference(x, indices, shape.cols);
  return compare(
      backend, output, expected, [](size_t) { return 0.0; }, kOperation, variant, name_of(shape));
}

}  // namespace gather_rows_cases

std::vector<CaseResult> run_gather_rows_cases(compute::Backend& backend, CaseSet set) {
  using namespace gather_rows_cases;
  std::vector<Shape> shapes = {{7, 3, 5, 0}, {3, 9, 257, 3}};
  if (set == CaseSet::full) {
    // 70,001 rows: more workgroups than one grid dimension holds.
    shapes.insert(shapes.end(), {{4, 0, 8, 0}, {1, 1, 1, 0}, {5, 1, 256, 0}, {11, 13, 255, 1}, {2, 7, 1031, 0}, {97, 70001, 3, 0}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      Result<CaseResult> result = run_one(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
