// Reading test data. A missing file fails the test that asked for it.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "formats/json.h"

namespace chorus {

inline std::string read_test_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << "missing: " << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Null (and a failed test) when the file is missing or malformed.
inline formats::JsonValue read_test_json(const std::string& path) {
  auto value = formats::parse_json(read_test_file(path), {.nul_allowed = true});
  EXPECT_TRUE(value.ok()) << path << ": " << (value.ok() ? "" : value.error().to_line());
  return value.ok() ? std::move(value).value() : formats::JsonValue();
}

}  // namespace chorus
