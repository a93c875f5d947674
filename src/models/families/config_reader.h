// Checked values of a config.json, for the family files. Every error is one line that names the file, the key, what was expected and found.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "formats/json.h"

namespace chorus::models::families {

// One object of the file. The JSON must outlive it. A key that is absent or null counts as missing.
class ConfigReader {
 public:
  ConfigReader(const formats::JsonValue& object, std::string where) : object_(&object), where_(std::move(where)) {}

  std::string what(std::string_view key) const { return where_ + ": " + std::string(key); }
  const formats::JsonValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The first of the keys that is there; the first of all when none is.
  std::string_view present(std::initializer_list<std::string_view> keys) const;

  Result<uint32_t> size(std::string_view key, uint32_t low = 1, uint32_t high = limits::kModelDimensionMax) const;
  Result<uint32_t> size_or(std::string_view key, uint32_t fallback, uint32_t low = 1, uint32_t high = limits::kModelDimensionMax) const;
  // low <= value <= high.
  Result<double> number_or(std::string_view key, double fallback, double low, double high) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;
  Result<std::vector<std::string>> texts(std::string_view key) const;
  Result<std::vector<uint32_t>> sizes(std::string_view key, uint32_t high) const;  // a number counts as a list of one
  Result<ConfigReader> inner(std::string_view key) const;

  // Errors unless the key is missing or has this value: the program runs nothing else.
  Status require_text(std::string_view key, std::string_view value) const;
  Status require_flag(std::string_view key, bool value) const;
  Status require_missing(std::string_view key) const;
  // a * b, which must be a size that the program takes.
  Result<uint32_t> product(std::string_view name, uint64_t a, uint64_t b) const;

  Error unsupported(std::string_view key, std::string_view runs, const std::string& found) const;
  Error invalid(std::string_view key, const std::string& expected_and_found) const;

 private:
  const formats::JsonValue* object_;
  std::string where_;
};

}  // namespace chorus::models::families
