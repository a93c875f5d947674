// Sizes and offsets of an expert record. Owns the arithmetic of compute::ExpertRecord; must not know any backend.
#include "compute/backend.h"

namespace chorus::compute {
namespace {

constexpr uint64_t kPartAlignment = 64;
constexpr uint32_t kRowElements = 8;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

ExpertRecord::ExpertRecord(const ExpertShape& shape)
    : hidden_padded(static_cast<uint32_t>(round_up(shape.hidden, kRowElements))),
      inner_padded(static_cast<uint32_t>(round_up(shape.inner, kRowElements))) {
  const uint64_t element = dtype_bytes(shape.dtype);
  down_offset = round_up(2ull * shape.inner * hidden_padded * element, kPartAlignment);
  bytes = round_up(down_offset + uint64_t{shape.hidden} * inner_padded * element, kPartAlignment);
  if (!shape.biases) return;
  gate_up_bias_offset = bytes;
  down_bias_offset = round_up(gate_up_bias_offset + 2ull * shape.inner * sizeof(float), kPartAlignment);
  bytes = round_up(down_bias_offset + uint64_t{shape.hidden} * sizeof(float), kPartAlignment);
}

}  // namespace chorus::compute
