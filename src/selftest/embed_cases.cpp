// Known-answer cases of embed: every stored type, odd widths, more ids than one grid dimension holds workgroups.
#include <string>
#include <utility>

#include "kernels/embed/embed_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace embed_cases {

constexpr const char* kOperation = "embed";

struct Shape {
  uint32_t table_rows, cols, rows;
  uint32_t gap;  // extra columns between output rows
};

std::string name_of(const Shape& shape, DType dtype) {
  return std::string(dtype_name(dtype)) + " table " + std::to_string(shape.table_rows) + " x " + std::to_string(shape.cols) + ", " +
         std::to_string(shape.rows) + " ids, gap " + std::to_string(shape.gap);
}

// Values whose 16-bit forms are normal numbers: reading a subnormal half may give zero (WGSL, unpack2x16float).
std::vector<float> table_values(Random& random, size_t count) {
  std::vector<float> values = random.vector(count);
  for (float& value : values) value = std::abs(value) < 0x1p-12f ? 0.0f : value;
  return values;
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape, DType dtype) {
  Random random(shape.table_rows * 17 + shape.cols);
  const std::vector<float> table = table_values(random, size_t{shape.table_rows} * shape.cols);
  std::vector<uint32_t> ids(shape.rows);
  for (uint32_t& id : ids) id = static_cast<uint32_t>(random.next() % shape.table_rows);
  if (!ids.empty()) ids.front() = shape.table_rows - 1;
  CHORUS_ASSIGN(auto weight, upload_weight(backend, table, shape.table_rows, shape.cols, dtype));
  CHORUS_ASSIGN(auto id_buffer, upload_u32(backend, ids));
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, shape.rows, shape.cols, shape.cols + shape.gap));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->embed({id_buffer.get(), weight.get(), output.view}));
  CHORUS_TRY(batch->submit());
  const std::vector<double> expected = kernels::embed_reference(table, dtype, ids, shape.cols);
  return compare(
      backend, output, expected, [](size_t) { return 0.0; }, kOperation, variant, name_of(shape, dtype));
}

}  // namespace embed_cases

std::vector<CaseResult> run_embed_cases(compute::Backend& backend, CaseSet set) {
  using namespace embed_cases;
  std::vector<Shape> shapes = {{11, 6, 4, 0}, {5, 257, 9, 2}};
  if (set == CaseSet::full) {
    // 70,001 ids: more workgroups than one grid dimension holds.
    shapes.insert(shapes.end(), {{3, 4, 0, 0}, {1, 1, 1, 0}, {2, 3, 2, 1}, {1009, 256, 31, 0}, {7, 1031, 5, 0}, {89, 3, 70001, 0}});
  }
  std::vector<CaseResult> results;
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        Result<CaseResult> result = run_one(backend, variant, shape, dtype);
        results.push_back(result ? *result : failed(kOperation, variant, name_of(shape, dtype), result.error()));
      }
    }
  });
  return results;
}

}  // namespace chorus::selftest
