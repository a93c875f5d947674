// What the tests of the argument checks share: a buffer without memory, and what a refusal must look like.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "compute/backend.h"
#include "compute/check.h"

namespace chorus::compute {

class FakeBuffer final : public Buffer {
 public:
  explicit FakeBuffer(uint64_t elements) : Buffer(elements * 4) {}
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().to_line(); }

// One line of invalid_argument that says what was expected and holds `part`.
inline void expect_fails(const Status& status, const std::string& part) {
  ASSERT_FALSE(status.ok()) << "accepted; should fail with: " << part;
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  const std::string line = status.error().to_line();
  EXPECT_NE(line.find(part), std::string::npos) << line;
  EXPECT_NE(line.find("expected"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

template <typename Args>
void expect_ok(const Args& args) {
  expect_ok(check(args));
}
template <typename Args>
void expect_fails(const Args& args, const std::string& part) {
  expect_fails(check(args), part);
}

}  // namespace chorus::compute
