// The twin itself: Philox against published answers, and small rows by hand.
#include "kernels/sample/sample_reference.h"

#include <gtest/gtest.h>

namespace chorus::kernels {
namespace {

using compute::SampleRow;
using Words = std::array<uint32_t, 4>;

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(PhiloxReference, KnownAnswers) {
  EXPECT_EQ(philox_reference({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox_reference({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox_reference({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

// With seed 0 and step 0 the draw is 0x6627e8d5 / 2^32 = 0.399.
TEST(SampleReference, TakesTheFirstTokenWhoseSumExceedsTheDraw) {
  const std::vector<float> logits = {0, 1, 0, 1};  // order 1, 3, 0, 2; probabilities 0.366, 0.366, 0.134, 0.134
  EXPECT_EQ(SampleReference(logits, SampleRow{}).token(), 3u);
  SampleRow row;
  row.top_k = 2;
  EXPECT_EQ(SampleReference(logits, row).token(), 1u);  // 0.5 exceeds 0.399
  row.top_k = 3;
  EXPECT_EQ(SampleReference(logits, row).token(), 1u);  // 0.42
  row = {};
  row.top_p = 0.3f;
  EXPECT_EQ(SampleReference(logits, row).token(), 1u);
  row = {};
  row.min_p = 0.5f;
  EXPECT_EQ(SampleReference(logits, row).token(), 1u);
  row = {};
  row.temperature = 100;
  EXPECT_EQ(SampleReference(logits, row).token(), 3u);
}

TEST(SampleReference, AllowsNoOtherTokenFarFromAnEdge) {
  const std::vector<float> logits = {0, 1, 0, 1};
  const SampleReference reference(logits, SampleRow{});
  EXPECT_LT(reference.doubt(), 1e-5);
  for (uint32_t token = 0; token < 4; ++token) EXPECT_EQ(reference.allows(token), token == 3);
  EXPECT_FALSE(reference.allows(UINT32_MAX));
  const SampleReference nan(std::vector<float>{0, std::nanf("")}, SampleRow{});
  EXPECT_EQ(nan.token(), UINT32_MAX);
  EXPECT_FALSE(nan.allows(0));
}

}  // namespace
}  // namespace chorus::kernels
