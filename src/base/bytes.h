// Small tools for bytes that come from outside: checked arithmetic, little-endian loads, whole files, safe quoting.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace chorus {

static_assert(std::endian::native == std::endian::little, "file formats are read in place: little-endian hosts only");

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> checked_multiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Reads an integer or float at any alignment. The caller has checked that sizeof(T) bytes are there.
template <typename T>
T load_unaligned(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

inline std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline std::span<const std::byte> as_bytes(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

// Text from a file or request, made fit for a one-line message: in double quotes, control characters escaped, and cut
// in the middle when longer than 160 bytes.
std::string quote_text(std::string_view text);

// Bytes from "512", "64K", "512M", "4G" or "1T" (powers of 1024). Nothing for other texts, and for what does not fit.
std::optional<uint64_t> parse_size(std::string_view text);

// The opposite, for people: "512 B", "12.6 MiB", "1.0 GiB". Powers of 1024, as in options.
std::string size_text(uint64_t bytes);
// A rate, in the same units: "93.1 GiB/s".
std::string rate_text(double bytes_per_second);

// Whether the folder has this name. A link that leads nowhere counts: a file that should be there must not pass for one that need not be.
bool name_is_taken(const std::filesystem::path& path);

// The whole file, refused when it holds more than `bytes_max`.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t bytes_max);

}  // namespace chorus
