// What the fuzz targets share: a promise that holds even for hostile input, and the input as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace chorus::fuzz {

// Ends the program with the broken promise, so that libFuzzer keeps the input.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

inline std::string_view as_text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }
inline std::span<const std::byte> as_bytes(const uint8_t* data, size_t size) { return {reinterpret_cast<const std::byte*>(data), size}; }

}  // namespace chorus::fuzz
