// Known-answer cases of the pointer scores: widths, uneven numbers of options, scale and temperature.
#include <string>

#include "kernels/pointer_scores/pointer_scores_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace pointer_scores_cases {

constexpr const char* kOperation = "pointer_scores";

struct Shape {
  uint32_t questions, options, width;
  uint32_t gap, offset;
};

bool whole_quads(const Shape& shape) { return shape.width % 4 == 0 && shape.gap % 4 == 0 && shape.offset % 4 == 0; }

std::string name_of(const Shape& shape) {
  return std::to_string(shape.questions) + " questions, " + std::to_string(shape.options) + " options x " + std::to_string(shape.width) +
         " gap " + std::to_string(shape.gap) + " offset " + std::to_string(shape.offset);
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  Random random(shape.options * 41 + shape.width);
  const std::vector<float> queries = random.vector(size_t{shape.questions} * shape.width);
  const std::vector<float> keys = random.vector(size_t{shape.options} * shape.width);
  std::vector<uint32_t> owners(shape.options);
  for (uint32_t& owner : owners) owner = static_cast<uint32_t>(random.next() % shape.questions);
  if (!owners.empty()) owners.back() = shape.questions - 1;
  CHORUS_ASSIGN(StridedInput query_input,
                make_input(backend, queries, shape.questions, shape.width, shape.width + shape.gap, shape.offset));
  CHORUS_ASSIGN(StridedInput key_input, make_input(backend, keys, shape.options, shape.width, shape.width + shape.gap, shape.offset));
  CHORUS_ASSIGN(auto owner_buffer, upload_u32(backend, owners));
  const float scale = 1.0f / 16, temperature = 1.7f;
  // The scores are a whole buffer, so sentinels fit behind them only.
  std::vector<float> poison(shape.options + kSentinelCount, kSentinel);
  std::fill_n(poison.begin(), shape.options, std::numeric_limits<float>::quiet_NaN());
  GuardedOutput output;
  CHORUS_ASSIGN(output.buffer, upload(backend, poison));
  output.view = {output.buffer.get(), 0, shape.options, 1, 1};
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->pointer_scores({query_input.view, key_input.view, owner_buffer.get(), scale, temperature, output.buffer.get()}));
  CHORUS_TRY(batch->submit());
  std::vector<double> sizes;
  const std::vector<double> expected = kernels::reference_pointer_scores(queries, keys, shape.width, owners, scale, temperature, &sizes);
  const auto tolerance = [&](size_t i) { return 8 * 0x1p-23 * sizes[i] + 1e-37; };  // roundings of a lane-wise sum of products
  return compare(backend, output, expected, tolerance, kOperation, variant, name_of(shape));
}

}  // namespace pointer_scores_cases

std::vector<CaseResult> run_pointer_scores_cases(compute::Backend& backend, CaseSet set) {
  using namespace pointer_scores_cases;
  std::vector<Shape> shapes = {{1, 2, 64, 0, 0}, {5, 23, 256, 4, 8}, {3, 7, 37, 1, 3}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(),
                  {{1, 0, 8, 0, 0}, {1, 1, 1, 0, 0}, {2, 5, 4, 0, 0}, {64, 255, 256, 0, 0}, {7, 31, 1027, 0, 0}, {3, 70001, 8, 0, 0}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      if (variant.starts_with("vec4") && !whole_quads(shape)) continue;
      if (shape.options > 10000 && backend.info().software && !variant.empty()) continue;  // slow there: only the backend's own choice
      Result<CaseResult> result = run_one(backend, variant, shape);
      results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
    }
  });
  return results;
}

}  // namespace chorus::selftest
