// Element types of weights and activations, as data: no device here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus {

enum class DType : uint8_t { f32, f16, bf16 };

constexpr uint32_t dtype_bytes(DType type) { return type == DType::f32 ? 4 : 2; }
// clang-format off
constexpr std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
  }
  return "?";
}
// clang-format on
constexpr std::optional<DType> parse_dtype(std::string_view name) {
  if (name == "f32") return DType::f32;
  if (name == "f16") return DType::f16;
  if (name == "bf16") return DType::bf16;
  return std::nullopt;
}

}  // namespace chorus
