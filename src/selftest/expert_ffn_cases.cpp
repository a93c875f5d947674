// Known-answer cases of expert_ffn: types, biases, both activations, odd sizes, routes without an expert; and: a route's bits depend
// neither on the slot, nor on other routes, nor (for few rows) on the rows beside it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/embed/embed_reference.h"
#include "kernels/expert_ffn/expert_ffn_reference.h"
#include "selftest/expert_tools.h"

namespace chorus::selftest {
namespace expert_ffn_cases {

using compute::ExpertActivation;
using compute::ExpertShape;

constexpr const char* kOperation = "expert_ffn";
constexpr uint32_t kFewRows = 8;  // up to here a row's bits must not depend on the number of rows

struct Shape {
  ExpertShape expert;
  uint32_t slots, rows, top_k;
  ExpertActivation activation = ExpertActivation::swiglu;
  uint32_t gap = 0, offset = 0;
};

std::string name_of(const Shape& shape) {
  return std::string(dtype_name(shape.expert.dtype)) + " " + std::to_string(shape.rows) + " x " + std::to_string(shape.expert.hidden) +
         " x " + std::to_string(shape.expert.inner) + ", " + std::to_string(shape.slots) + " slots top " + std::to_string(shape.top_k) +
         " gap " + std::to_string(shape.gap) + " offset " + std::to_string(shape.offset) + (shape.expert.biases ? ", biases" : "") +
         (shape.activation == ExpertActivation::clamped_swiglu ? ", clamped" : "");
}

std::vector<Expert> make_experts(const Shape& shape) {
  Random random(shape.expert.hidden * 3 + shape.expert.inner);
  std::vector<Expert> experts;
  for (uint32_t slot = 0; slot < shape.slots; ++slot) experts.push_back(random_expert(shape.expert, random));
  return experts;
}

// Different experts for the routes of a row where there are enough; now and then none, or a number past the bank.
std::vector<uint32_t> make_slots(const Shape& shape) {
  Random random(shape.rows + 7);
  std::vector<uint32_t> slots;
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const uint32_t first = static_cast<uint32_t>(random.next() % shape.slots);
    for (uint32_t rank = 0; rank < shape.top_k; ++rank) {
      const uint64_t dice = random.next() % 16;
      slots.push_back(dice == 0 ? compute::kNoSlot : dice == 1 ? shape.slots : (first + 3 * rank) % shape.slots);
    }
  }
  return slots;
}

std::vector<double> rounded(std::span<const float> values, DType dtype) {
  std::vector<double> result;
  for (const float value : values) result.push_back(kernels::round_to_dtype(value, dtype));
  return result;
}

compute::ExpertFfnArgs options_of(const Shape& shape) {
  compute::ExpertFfnArgs args;
  args.top_k = shape.top_k;
  args.activation = shape.activation;
  args.limit = 2;  // within reach of the cases' values
  return args;
}

// x, slots and content of out before; the content after.
Result<GuardedOutput> run_ffn(compute::Backend& backend, const Shape& shape, const compute::ExpertBank& bank, std::span<const float> x,
                              std::span<const uint32_t> slots, std::span<const float> initial) {
  const uint32_t hidden = shape.expert.hidden, stride = hidden + shape.gap;
  const uint32_t rows = static_cast<uint32_t>(x.size() / hidden);
  CHORUS_ASSIGN(StridedInput in, make_input(backend, x, rows, hidden, stride, shape.offset));
  CHORUS_ASSIGN(auto slot_buffer, upload_u32(backend, slots));
  CHORUS_ASSIGN(GuardedOutput output, make_output(backend, rows * shape.top_k, hidden, stride, initial));
  compute::ExpertFfnArgs args = options_of(shape);
  args.bank = &bank;
  args.x = in.view;
  args.slots = slot_buffer.get();
  args.out = output.view;
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  CHORUS_TRY(batch->expert_ffn(args));
  CHORUS_TRY(batch->submit());
  return output;
}

Result<CaseResult> run_one(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const std::vector<Expert> experts = make_experts(shape);
  const std::vector<uint32_t> slots = make_slots(shape);
  const size_t hidden = shape.expert.hidden;
  Random random(shape.rows * 11 + shape.expert.hidden);
  const std::vector<float> x = random.vector(shape.rows * hidden), initial = random.vector(slots.size() * hidden);
  CHORUS_ASSIGN(auto bank, upload_bank(backend, shape.expert, experts));
  CHORUS_ASSIGN(const GuardedOutput output, run_ffn(backend, shape, *bank, x, slots, initial));

  std::vector<kernels::ExpertValues> values;
  for (const Expert& expert : experts) {
    values.push_back({rounded(expert.gate_up, shape.expert.dtype), rounded(expert.down, shape.expert.dtype),
                      rounded(expert.gate_up_bias, DType::f32), rounded(expert.down_bias, DType::f32)});
  }
  std::vector<double> expected(initial.begin(), initial.end()), tolerance(initial.size(), 0);
  for (size_t route = 0; route < slots.size(); ++route) {
    if (slots[route] >= shape.slots) continue;
    const kernels::ExpertFfnReference reference =
        kernels::reference_expert_ffn(options_of(shape), values[slots[route]], std::span(x).subspan(route / shape.top_k * hidden, hidden));
    std::copy(reference.out.begin(), reference.out.end(), expected.begin() + static_cast<ptrdiff_t>(route * hidden));
    std::copy(reference.tolerance.begin(), reference.tolerance.end(), tolerance.begin() + static_cast<ptrdiff_t>(route * hidden));
  }
  return compare(
      backend, output, expected, [&](size_t i) { return tolerance[i]; }, kOperation, variant, name_of(shape));
}

size_t differing(std::span<const float> a, std::span<const float> b) {
  size_t count = a.size() == b.size() ? 0 : std::max(a.size(), b.size());
  for (size_t i = 0; count == 0 && i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(float)) == 0 ? 0 : 1;
  return count;
}

// Same routes through a bank in another order with one slot more, and in two waves.
Result<CaseResult> run_waves(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  std::vector<Expert> experts = make_experts(shape);
  const std::vector<uint32_t> slots = make_slots(shape);
  Random random(77);
  const std::vector<float> x = random.vector(size_t{shape.rows} * shape.expert.hidden);
  const std::vector<float> initial = random.vector(slots.size() * shape.expert.hidden);
  CHORUS_ASSIGN(auto bank, upload_bank(backend, shape.expert, experts));
  CHORUS_ASSIGN(const GuardedOutput once, run_ffn(backend, shape, *bank, x, slots, initial));
  CHORUS_ASSIGN(const std::vector<float> expected, download(backend, *once.buffer));

  std::reverse(experts.begin(), experts.end());
  experts.push_back(experts.front());
  CHORUS_ASSIGN(auto other_bank, upload_bank(backend, shape.expert, experts));
  std::vector<float> content = initial;
  std::vector<float> found;
  for (uint32_t wave = 0; wave < 2; ++wave) {
    std::vector<uint32_t> part;
    for (const uint32_t slot : slots) {
      part.push_back(slot < shape.slots && slot % 2 == wave ? shape.slots - 1 - slot : compute::kNoSlot);
    }
    CHORUS_ASSIGN(const GuardedOutput output, run_ffn(backend, shape, *other_bank, x, part, content));
    CHORUS_ASSIGN(found, download(backend, *output.buffer));
    for (size_t i = 0; i < content.size(); ++i) {
      content[i] = found[kSentinelCount + i / shape.expert.hidden * output.view.stride + i % shape.expert.hidden];
    }
  }
  const size_t count = differing(expected, found);
  return CaseResult{kOperation, variant,    "same bits in waves, " + name_of(shape), static_cast<double>(count),
                    0,          count == 0, count == 0 ? "" : "elements differ"};
}

// Each row alone and all together.
Result<CaseResult> run_rows_alone(compute::Backend& backend, const std::string& variant, const Shape& shape) {
  const std::vector<Expert> experts = make_experts(shape);
  const std::vector<uint32_t> slots = make_slots(shape);
  const size_t hidden = shape.expert.hidden, row_size = shape.top_k * hidden;
  const std::vector<float> x = Random(78).vector(shape.rows * hidden), initial(slots.size() * hidden, 1.5f);
  CHORUS_ASSIGN(auto bank, upload_bank(backend, shape.expert, experts));
  CHORUS_ASSIGN(const GuardedOutput together, run_ffn(backend, shape, *bank, x, slots, initial));
  CHORUS_ASSIGN(const std::vector<float> expected, download(backend, *together.buffer));
  size_t count = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    CHORUS_ASSIGN(const GuardedOutput alone,
                  run_ffn(backend, shape, *bank, std::span(x).subspan(row * hidden, hidden),
                          std::span(slots).subspan(row * shape.top_k, shape.top_k), std::span(initial).subspan(0, row_size)));
    CHORUS_ASSIGN(const std::vector<float> found, download(backend, *alone.buffer));
    count += differing(std::span(expected).subspan(kSentinelCount + row * row_size, row_size),
                       std::span(found).subspan(kSentinelCount, row_size));
  }
  return CaseResult{kOperation, variant,    "same bits alone, " + name_of(shape), static_cast<double>(count),
                    0,          count == 0, count == 0 ? "" : "elements differ"};
}

// Rows that cannot be read in fours have f32 experts: how x is read has nothing to do with the weights' type, and software adapters take a
// second for each pair of both.
std::vector<Shape> shapes_of(CaseSet set) {
  constexpr ExpertActivation kClamped = ExpertActivation::clamped_swiglu;
  std::vector<Shape> shapes = {
      {{64, 32, DType::f16, false}, 4, 1, 2},
      {{37, 21, DType::f32, true}, 5, 3, 3, kClamped, 3, 1},
      {{64, 40, DType::bf16, true}, 3, 11, 2, kClamped, 4, 8},
      {{72, 24, DType::f16, true}, 6, 20, 3},
  };
  if (set != CaseSet::full) return shapes;
  const std::vector<Shape> more = {
      {{8, 8, DType::f32, false}, 2, 0, 2},
      {{1, 1, DType::f32, true}, 1, 1, 1},
      {{4, 1, DType::f16, true}, 1, 1, 1},
      {{12, 9, DType::bf16, false}, 2, 2, 1, kClamped, 4, 8},
      {{256, 64, DType::f32, false}, 3, 8, 2},
      {{300, 129, DType::f16, false}, 4, 2, 4, ExpertActivation::swiglu, 0, 4},
      {{132, 77, DType::bf16, true}, 3, 35, 2, ExpertActivation::swiglu, 4, 0},
      {{132, 68, DType::f32, true}, 7, 12, 4, kClamped, 4, 4},
      {{16, 8, DType::f16, false}, 2, 260, 2},   // more routes to one expert than a part or a tile takes
      {{1100, 24, DType::f32, false}, 2, 9, 2},  // longer rows than a block
  };
  shapes.insert(shapes.end(), more.begin(), more.end());
  return shapes;
}

}  // namespace expert_ffn_cases

std::vector<CaseResult> run_expert_ffn_cases(compute::Backend& backend, CaseSet set) {
  using namespace expert_ffn_cases;
  std::vector<CaseResult> results;
  const auto add = [&](const std::string& variant, const Shape& shape, auto run) {
    Result<CaseResult> result = run(backend, variant, shape);
    results.push_back(result ? *result : failed(kOperation, variant, name_of(shape), result.error()));
  };
  for_each_variant(backend, kOperation, results, [&](const std::string& variant) {
    for (const Shape& shape : shapes_of(set)) {
      // No backend chooses these for many rows, and software adapters take long over them.
      if (variant.starts_with("row") && shape.rows > 2 * kFewRows) continue;
      add(variant, shape, run_one);
    }
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      add(variant, {{136, 48, dtype, true}, 5, 4, 3}, run_waves);
      add(variant, {{72, 40, dtype, false}, 4, 17, 2}, run_waves);
      add(variant, {{200, 72, dtype, false}, 4, kFewRows, 3}, run_rows_alone);
    }
  });
  return results;
}

}  // namespace chorus::selftest
