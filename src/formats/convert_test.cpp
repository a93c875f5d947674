#include "formats/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"

namespace chorus::formats {
namespace {

TEST(Convert, WidensEveryHalfBitPattern) {
  std::vector<uint16_t> halves(65536 + 5);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> f16(halves.size());
  std::vector<float> bf16(halves.size());
  widen_f16(reinterpret_cast<const std::byte*>(halves.data()), f16);
  widen_bf16(reinterpret_cast<const std::byte*>(halves.data()), bf16);
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(f16[i]), std::bit_cast<uint32_t>(f16_to_float(halves[i]))) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(bf16[i]), static_cast<uint32_t>(halves[i]) << 16) << i;
  }
}

TEST(Convert, FindsTheFirstNotANumberAnywhere) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const size_t size : {1, 31, 32, 33, 64, 100}) {
      std::vector<float> values(size, std::numeric_limits<float>::max());
      EXPECT_FALSE(first_not_finite(values).has_value());
      for (size_t at = size; at-- > 0;) {
        values[at] = bad;  // those after it stay bad: the first one counts
        ASSERT_EQ(first_not_finite(values), at) << size;
      }
    }
  }
  EXPECT_FALSE(first_not_finite({}).has_value());
}

TEST(Convert, LowRankUpdateMatchesDoublePrecision) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t columns : {1, 31, 32, 33, 97}) {
    for (const size_t rank : {1, 2, 16, 17}) {
      std::vector<float> a(rank * columns), b(rank), row(columns);
      for (auto* values : {&a, &b, &row}) {
        for (float& value : *values) value = normal(random);
      }
      std::vector<float> result = row;
      add_low_rank(b, a, 0.75f, result);
      for (size_t j = 0; j < columns; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (size_t r = 0; r < rank; ++r) {
          sum += static_cast<double>(b[r]) * a[r * columns + j];
          magnitude += std::fabs(static_cast<double>(b[r]) * a[r * columns + j]);
        }
        const double exact = row[j] + 0.75 * sum;
        ASSERT_LE(std::fabs(result[j] - exact), 0x1p-24 * ((static_cast<double>(rank) + 2) * 0.75 * magnitude + std::fabs(exact)))
            << columns << " " << rank << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace chorus::formats
