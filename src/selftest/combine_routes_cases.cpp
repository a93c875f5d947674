// Known-answer cases of combine_routes: with and without a shared expert and its gate, odd widths, strides.
#include <cmath>
#include <string>

#include "kernels/combine_routes/combine_routes_reference.h"
#include "selftest/case_tools.h"

namespace chorus::selftest {
namespace combine_routes_cases {

constexpr const char* kOperation = "combine_routes";

enum class Shared { none, plain, gated };

struct Shape {
  uint32_t rows, cols, top_k;
  Shared shared = Shared::none;
  uint32_t gap = 0, offset = 0;
};

bool whole_quads(const Shape& shape) { return shape.cols % 4 == 0 && shape.gap % 4 == 0 && shape.offset % 4 == 0; }

std::string name_of(const Shape& shape) {
  constexpr const char* kNames[] = {"", ", shared", ", shared and gate"};
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + " top " + std::to_string(shape.top_k) + " gap " +
         std::to_string(shape.gap) + " offset " + std::to_string(shape.offset) + kNames[static_cast<size_t>(shape.shared)];
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  Random random(shape.rows * 41 + shape.cols + shape.top_k);
  const uint32_t routes = shape.rows * shape.top_k, stride = shape.cols + shape.gap;
  const std::vector<float> routed = random.vector(size_t{routes} * shape.cols), weights = random.vector(routes, 0, 1);
  const std::vector<float> shared = random.vector(shape.shared == Shared::none ? 0 : size_t{shape.rows} * shape.cols);
  const std::vector<float> gate = random.vector(shape.shared == Shared::gated ? shape.rows : 0, -6, 6);
  const std::vector<float> initial = random.vector(size_t{shape.rows} * shape.cols);

  CHORUS_ASSIGN(StridedInput routed_in, make_input(backend, routed, routes, shape.cols, stride, shape.offset));
  CHORUS_ASSIGN(auto weight_buffer, upload(backend, weights));
  StridedInput shared_in, gate_in;
  if (!shared.empty()) {
    CHORUS_ASSIGN(shared_in, make_input(backend, shared, shape.rows, shape.cols, stride, shape.offset));
  }
  if (!gate.empty()) {
    CHORUS_ASSIGN(gate_in, make_input(backend, gate, shape.rows, 1, 1 + shape.gap, shape.offset));
  }
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, shape.rows, shape.cols, stride, initial));
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->combine_routes({shape.top_k, routed_in.view, weight_buffer.get(), shared_in.view, gate_in.view, output.view}));
  CHORUS_TRY(batch->submit());

  const kernels::CombineRoutesReference reference =
      kernels::reference_combine_routes(routed, weights, shared, gate, initial, shape.top_k, shape.cols);
  // One rounding per product and per sum of two; for the gate WGSL's exp(x), 3 + 2 |x| units in the last place, a sum and a division.
  const auto tolerance = [&](size_t i) {
    const double of_gate = gate.empty() ? 0 : 2 * (8 + 2 * std::abs(gate[i / shape.cols]));
    return 0x1p-24 * (shape.top_k + 4 + of_gate) * reference.magnitude[i];
  };
  return compare(backend, output, reference.out, tolerance, kOperation, variant, name_of(shape));
}

}  // namespace combine_routes_cases

std::vector<CaseResult> run_combine_routes_cases(compute::Backend& backend, CaseSet set) {
  using namespace combine_routes_cases;
  std::vector<Shape> shapes = {{3, 64, 8}, {2, 36, 4, Shared::gated, 4, 8}, {5, 37, 2, Shared::gated, 1, 3}, {4, 64, 6, Shared::plain}};
  if (set == CaseSet::full) {
    shapes.insert(shapes.end(), {{0, 8, 2},
                                 {1, 1, 1},
                                 {1, 4, 32, Shared::gated},
                                 {7, 257, 3, Shared::plain, 2, 1},
                                 {3, 2048, 8, Shared::gated},
                                 {70, 300, 2, Shared::gated, 4, 0}});
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
