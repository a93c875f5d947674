// Test data for the tests of several folders; no part of the library. A missing file reads as empty and a malformed one as null, which no
// test that uses it accepts.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "formats/json.h"

namespace chorus::formats {

inline std::string read_test_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline JsonValue read_test_json(const std::string& path) {
  auto value = parse_json(read_test_file(path), {.nul_allowed = true});
  return value.ok() ? std::move(value).value() : JsonValue();
}

}  // namespace chorus::formats
