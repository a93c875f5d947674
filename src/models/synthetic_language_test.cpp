#include "models/synthetic_language.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "compute/backend.h"
#include "formats/test_tools.h"
#include "models/blueprint_tensors.h"
#include "models/families/read_blueprint.h"

namespace chorus::models {
namespace {

using formats::testing::expect_error;

// Parameters of a blueprint, in billions.
double billions(const Blueprint& blueprint) {
  double count = 0;
  for (const NamedShape& tensor : resident_tensors(blueprint)) {
    double elements = 1;
    for (const uint64_t extent : tensor.shape) elements *= static_cast<double>(extent);
    count += elements;
  }
  for (const LayerSpec& layer : blueprint.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) count += 3.0 * moe->experts * moe->inner * blueprint.hidden;
  }
  return count / 1e9;
}

TEST(SyntheticLanguage, GeometriesHaveTheSizesThatTheirNamesSay) {
  const double expected[] = {6.92, 30.53, 34.66};  // of the models' own descriptions: 6.9 B, 30.5 B, 35 B
  const auto names = language_geometry_names();
  ASSERT_EQ(names.size(), 3u);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto config = language_geometry_config(names[i]);
    ASSERT_TRUE(config.ok());
    const auto blueprint = read_blueprint(*config);
    ASSERT_TRUE(blueprint.ok()) << names[i] << ": " << (blueprint.ok() ? "" : blueprint.error().to_line());
    EXPECT_NEAR(billions(*blueprint), expected[i], 0.02 * expected[i]) << names[i];
  }
  expect_error(language_geometry_config("gpt-0"), "olmoe-1b-7b");
}

TEST(SyntheticLanguage, WeightsAndExpertsAreSeededAndOfOrdinarySize) {
  const auto blueprint = read_blueprint(*language_geometry_config("olmoe-1b-7b"));
  ASSERT_TRUE(blueprint.ok());
  const auto weights = synthetic_language_weights(*blueprint, 7), same = synthetic_language_weights(*blueprint, 7),
             other = synthetic_language_weights(*blueprint, 8);
  std::vector<float> a(4 * 2048), b(a.size()), c(a.size());
  ASSERT_TRUE(weights->read_rows(blueprint->embedding, 100, 4, a).ok());
  ASSERT_TRUE(same->read_rows(blueprint->embedding, 100, 4, b).ok());
  ASSERT_TRUE(other->read_rows(blueprint->embedding, 100, 4, c).ok());
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  double squares = 0;
  for (const float value : a) squares += static_cast<double>(value) * value;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(a.size()) * 2048), 1, 0.05);  // five standard deviations of the estimate are 0.03

  const compute::ExpertRecord layout({2048, 1024, DType::f16, false});
  std::vector<std::byte> one(layout.bytes, std::byte{0xff}), two(layout.bytes);
  const SyntheticExperts experts(*blueprint, DType::f16, 7);
  ASSERT_TRUE(experts.fill(3, 5, one).ok());
  ASSERT_TRUE(experts.fill(3, 6, two).ok());
  EXPECT_NE(one, two);
  const auto* halves = reinterpret_cast<const uint16_t*>(one.data());
  for (size_t i = 0; i < layout.bytes / 2; i += 97) ASSERT_LT(std::fabs(f16_to_float(halves[i])), 0.1f) << i;
  EXPECT_FALSE(experts.fill(3, 64, one).ok());
  EXPECT_FALSE(experts.fill(16, 0, one).ok());
  EXPECT_FALSE(experts.fill(0, 0, std::span(one).first(100)).ok());
}

}  // namespace
}  // namespace chorus::models
