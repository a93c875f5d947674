// Known-answer cases of argmax: equals, infinities, both zeros, NaN, long rows. The answer is exact.
#include <limits>
#include <string>

#include "kernels/argmax/argmax_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace argmax_cases {

constexpr const char* kOperation = "argmax";
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Content { uniform, few_values, zeros, negative_infinity, one_nan, last };

struct Shape {
  uint32_t rows, cols;
  uint32_t gap = 0;  // extra elements between rows
  Content content = Content::uniform;
};

std::string name_of(const Shape& shape) {
  constexpr const char* kNames[] = {"uniform", "few values", "zeros", "negative infinity", "one NaN", "last"};
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " gap " + std::to_string(shape.gap) + " " +
         kNames[static_cast<size_t>(shape.content)];
}

std::vector<float> values_of(const Shape& shape) {
  Random random(shape.rows * 31 + shape.cols);
  std::vector<float> values = random.vector(size_t{shape.rows} * shape.cols, -5, -1);
  for (size_t i = 0; i < values.size(); ++i) {
    if (shape.content == Content::few_values) values[i] = static_cast<float>(random.next() % 3);
    if (shape.content == Content::zeros) values[i] = random.next() % 2 == 0 ? 0.0f : -0.0f;
    if (shape.content == Content::negative_infinity) values[i] = -kInfinity;
    if (shape.content == Content::last && i % shape.cols == shape.cols - 1) values[i] = i / shape.cols % 2 == 0 ? 0.5f : kInfinity;
  }
  for (size_t row = 0; shape.content == Content::one_nan && row < shape.rows; row += 2) {
    values[row * shape.cols + random.next() % shape.cols] = row % 4 == 0 ? kNan : -kNan;  // every other row
  }
  return values;
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const std::vector<float> values = values_of(shape);
  CHORUS_ASSIGN(StridedInput x, make_input(backend, values, shape.rows, shape.cols, shape.cols + shape.gap, 5));
  constexpr uint32_t kUntouched = 0xabcdef01u;
  CHORUS_ASSIGN(auto indices, upload_u32(backend, std::vector<uint32_t>(shape.rows + 3, kUntouched)));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->argmax({x.view, indices.get()}));
  CHORUS_TRY(batch->submit());
  std::vector<uint32_t> expected = kernels::argmax_reference(values, shape.rows, shape.cols);
  expected.insert(expected.end(), 3, kUntouched);
  std::vector<uint32_t> found(expected.size());
  CHORUS_TRY(backend.read(*indices, 0, std::as_writable_bytes(std::span(found))));
  CaseResult result{kOperation, variant, name_of(shape), 0, 0, found == expected, {}};
  for (size_t row = 0; row < found.size(); ++row) {
    if (found[row] == expected[row]) continue;
    result.error += 1;
    result.detail = "row " + std::to_string(row) + ": expected " + std::to_string(expected[row]) + ", found " + std::to_string(found[row]);
  }
  return result;
}

}  // namespace argmax_cases

std::vector<CaseResult> run_argmax_cases(compute::Backend& backend, CaseSet set) {
  using namespace argmax_cases;
  std::vector<Shape> shapes = {{3, 64}, {5, 1000, 3, Content::few_values}, {6, 300, 0, Content::one_nan}, {2, 9000, 1, Content::last}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(), {{0, 8},
                                 {1, 1},
                                 {2, 1, 0, Content::one_nan},
                                 {4, 257, 0, Content::zeros},
                                 {2, 70, 0, Content::negative_infinity},
                                 {3, 8193, 0, Content::few_values},
                                 {4, 4097, 7, Content::last},
                                 {300, 3, 0, Content::few_values},
                                 {1, 262147},
                                 {1, 262144, 0, Content::one_nan},
                                 {1, 300001, 0, Content::last}});
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
