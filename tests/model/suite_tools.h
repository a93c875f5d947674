// What the suites of whole models share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace chorus::suite_tools {

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().to_line();
    std::abort();  // a test without its model has failed; going on would only hide why
  }
  return std::move(result).value();
}

// Token ids of no meaning, the same everywhere.
inline std::vector<uint32_t> some_tokens(uint32_t count, uint32_t vocabulary, uint32_t seed) {
  std::vector<uint32_t> tokens(count);
  uint64_t state = seed;
  for (uint32_t& token : tokens) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    token = static_cast<uint32_t>((state >> 33) % vocabulary);
  }
  return tokens;
}

// The norm of the difference by the norm of `expected`, which is not 0.
inline double relative_difference(std::span<const float> found, std::span<const float> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const double error = static_cast<double>(found[i]) - expected[i];
    difference += error * error;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(difference / norm);
}

}  // namespace chorus::suite_tools
