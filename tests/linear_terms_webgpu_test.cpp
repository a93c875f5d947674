// linear_terms on any adapter: rows as sums of two f16 terms hold 22 bits. (The product of terms needs matrix hardware; this does not.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/linear/linear_webgpu.h"
#include "selftest/case_tools.h"
#include "webgpu_test_device.h"

namespace chorus::kernels {
namespace {

constexpr uint32_t kTermRows = 5;
constexpr uint32_t kDepth = 2068;  // 517 vec4s: the last oct is half full
constexpr uint32_t kOcts = 259;

std::vector<float> rows_of_many_magnitudes() {
  selftest::Random random(7);
  std::vector<float> values = random.vector(size_t{kTermRows} * kDepth);
  for (uint32_t col = 0; col < kDepth; ++col) {
    values[kDepth + col] *= 0x1p-100f;                                          // a row of small numbers
    values[2 * kDepth + col] *= 0x1p100f;                                       // and one of big ones
    values[3 * kDepth + col] *= std::ldexp(1.0f, -static_cast<int>(col % 40));  // magnitudes far apart within a row
    values[4 * kDepth + col] = 0;
  }
  return values;
}

// The terms of `source` in the device's planes, then its scales.
struct Terms {
  std::vector<uint16_t> halves;
  std::vector<float> scales;
};

Result<Terms> terms_on_device(std::string_view build, const std::vector<float>& source, uint32_t offset, uint32_t terms) {
  CHORUS_ASSIGN(auto device, gpu::Device::create(tests::test_device_options()));
  CHORUS_ASSIGN(const gpu::ShaderSource* shader, require_shader("linear_terms", build));
  LinearTermsParams params;
  params.rows = kTermRows;
  params.quads = kDepth / 4;
  params.octs = kOcts;
  params.depth = kDepth;
  params.x_offset = offset;
  params.x_stride = kDepth;
  params.plane = kTermRows * kOcts;
  const uint64_t bytes = uint64_t{kTermRows} * kOcts * 16 * terms;
  CHORUS_ASSIGN(auto input, device->create_storage(source.size() * 4, "source"));
  CHORUS_ASSIGN(auto planes, device->create_storage(bytes, "planes"));
  CHORUS_ASSIGN(auto scales, device->create_storage(kTermRows * 4, "scales"));
  CHORUS_TRY(device->write(input, 0, std::as_bytes(std::span(source))));
  const std::vector<uint32_t> poison(bytes / 4, 0x7e007e00u);  // NaN in both halves
  CHORUS_TRY(device->write(planes, 0, std::as_bytes(std::span(poison))));
  CHORUS_TRY(device->dispatch({shader,
                               {{input, gpu::Access::read}, {planes, gpu::Access::read_write}, {scales, gpu::Access::read_write}},
                               as_params(params),
                               {kTermRows, 1, 1}}));
  Terms result{std::vector<uint16_t>(bytes / 2), std::vector<float>(kTermRows)};
  CHORUS_TRY(device->read(planes, 0, std::as_writable_bytes(std::span(result.halves))));
  CHORUS_TRY(device->read(scales, 0, std::as_writable_bytes(std::span(result.scales))));
  return result;
}

void expect_22_bits(const std::vector<float>& source, const Terms& terms) {
  for (uint32_t row = 0; row < kTermRows; ++row) {
    int exponent = 0;
    ASSERT_EQ(std::frexp(terms.scales[row], &exponent), 0.5) << "the scale of row " << row << " is no power of two";
    double largest = 0;
    for (uint32_t col = 0; col < kDepth; ++col) largest = std::max<double>(largest, std::abs(source[row * kDepth + col]));
    for (uint32_t col = 0; col < kOcts * 8; ++col) {
      const size_t at = size_t{row} * kOcts * 8 + col;
      const double found =
          (static_cast<double>(f16_to_float(terms.halves[at])) + f16_to_float(terms.halves[size_t{kTermRows} * kOcts * 8 + at])) *
          terms.scales[row];
      const double expected = col < kDepth ? source[row * kDepth + col] : 0;
      // Half a unit of 22 bits, and half the smallest half (2^-25) in units of the scale.
      const double tolerance = 0x1p-22 * std::abs(expected) + 0x1p-38 * largest;
      ASSERT_LE(std::abs(found - expected), tolerance) << "row " << row << " col " << col << ", expected " << expected;
    }
  }
}

TEST(LinearTerms, OfXHold22Bits) {
  const std::vector<float> source = rows_of_many_magnitudes();
  auto quads = terms_on_device("x_quad", source, 0, 2);
  ASSERT_TRUE(quads.ok()) << quads.error().to_line();
  expect_22_bits(source, *quads);
  std::vector<float> shifted = {std::nanf("")};
  shifted.insert(shifted.end(), source.begin(), source.end());
  auto elements = terms_on_device("x_element", shifted, 1, 2);
  ASSERT_TRUE(elements.ok()) << elements.error().to_line();
  EXPECT_EQ(elements->halves, quads->halves);
  EXPECT_EQ(elements->scales, quads->scales);
}

TEST(LinearTerms, OfF32WeightsHold22Bits) {
  const std::vector<float> source = rows_of_many_magnitudes();
  auto terms = terms_on_device("weight_f32", source, 0, 2);
  ASSERT_TRUE(terms.ok()) << terms.error().to_line();
  expect_22_bits(source, *terms);
}

TEST(LinearTerms, OfBf16WeightsAreExactWhereTheyAreNormal) {
  const std::vector<float> values = rows_of_many_magnitudes();
  std::vector<float> packed(values.size() / 2);
  std::vector<uint16_t> stored;
  for (const float value : values) stored.push_back(float_to_bf16(value));
  std::memcpy(packed.data(), stored.data(), stored.size() * 2);
  auto terms = terms_on_device("weight_bf16", packed, 0, 1);
  ASSERT_TRUE(terms.ok()) << terms.error().to_line();
  for (uint32_t row = 0; row < kTermRows; ++row) {
    for (uint32_t col = 0; col < kDepth; ++col) {
      const float expected = bf16_to_float(stored[row * kDepth + col]) / terms->scales[row];
      const float found = f16_to_float(terms->halves[size_t{row} * kOcts * 8 + col]);
      if (std::abs(expected) >= 0x1p-14f) {
        ASSERT_EQ(found, expected) << "row " << row << " col " << col;
      } else {
        ASSERT_NEAR(found, expected, 0x1p-14f) << "row " << row << " col " << col;  // subnormal halves may be flushed
      }
    }
  }
}

}  // namespace
}  // namespace chorus::kernels
