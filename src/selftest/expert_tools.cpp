#include "selftest/expert_tools.h"

#include <cstring>

#include "base/half.h"

namespace chorus::selftest {
namespace {

void put_row(std::span<const float> row, DType dtype, std::byte* target) {
  if (dtype == DType::f32) {
    std::memcpy(target, row.data(), row.size_bytes());
    return;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t half = dtype == DType::f16 ? float_to_f16(row[i]) : float_to_bf16(row[i]);
    std::memcpy(target + i * sizeof(half), &half, sizeof(half));
  }
}

void put_matrix(std::span<const float> values, size_t cols, size_t padded, DType dtype, std::byte* target) {
  for (size_t row = 0; row < values.size() / cols; ++row) {
    put_row(values.subspan(row * cols, cols), dtype, target + row * padded * dtype_bytes(dtype));
  }
}

// Values whose 16-bit forms are normal numbers or zero: reading a subnormal half may give zero (WGSL, unpack2x16float).
std::vector<float> weight_values(Random& random, size_t count) {
  std::vector<float> values = random.vector(count);
  for (float& value : values) value = std::abs(value) < 0x1p-12f ? 0.0f : value;
  return values;
}

}  // namespace

Expert random_expert(const compute::ExpertShape& shape, Random& random) {
  Expert expert;
  expert.gate_up = weight_values(random, 2 * size_t{shape.inner} * shape.hidden);
  expert.down = weight_values(random, size_t{shape.hidden} * shape.inner);
  if (shape.biases) {
    expert.gate_up_bias = random.vector(2 * size_t{shape.inner});
    expert.down_bias = random.vector(shape.hidden);
  }
  return expert;
}

std::vector<std::byte> make_record(const compute::ExpertShape& shape, const Expert& expert) {
  const compute::ExpertRecord layout(shape);
  std::vector<std::byte> record(layout.bytes);
  put_matrix(expert.gate_up, shape.hidden, layout.hidden_padded, shape.dtype, record.data());
  put_matrix(expert.down, shape.inner, layout.inner_padded, shape.dtype, record.data() + layout.down_offset);
  if (shape.biases) {
    put_row(expert.gate_up_bias, DType::f32, record.data() + layout.gate_up_bias_offset);
    put_row(expert.down_bias, DType::f32, record.data() + layout.down_bias_offset);
  }
  return record;
}

Result<std::shared_ptr<compute::ExpertBank>> upload_bank(compute::Backend& backend, const compute::ExpertShape& shape,
                                                         std::span<const Expert> experts) {
  CHORUS_ASSIGN(auto bank, backend.create_expert_bank(shape, static_cast<uint32_t>(experts.size()), "case experts"));
  for (uint32_t slot = 0; slot < experts.size(); ++slot) {
    CHORUS_TRY(backend.write_expert(*bank, slot, make_record(shape, experts[slot])));
  }
  return bank;
}

}  // namespace chorus::selftest
