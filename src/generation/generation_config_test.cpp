#include "generation/generation_config.h"

#include <gtest/gtest.h>

#include "formats/test_tools.h"

namespace chorus::generation {
namespace {

using formats::testing::expect_error;

TEST(GenerationConfig, ReadsEndTokensAndSampling) {
  const auto plain = parse_generation_config(R"({"eos_token_id": 7, "temperature": 0.5, "top_k": null})");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->end_tokens, std::vector<uint32_t>{7});
  EXPECT_EQ(plain->sampling.temperature, 0) << "greedy without do_sample";

  const auto sampling = parse_generation_config(
      R"({"eos_token_id": [1, 2], "do_sample": true, "temperature": 0.5, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.5})");
  ASSERT_TRUE(sampling.ok());
  EXPECT_EQ(sampling->end_tokens, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(sampling->sampling.temperature, 0.5f);
  EXPECT_EQ(sampling->sampling.top_k, 20u);
  EXPECT_EQ(sampling->sampling.top_p, 0.9f);
  EXPECT_EQ(sampling->sampling.min_p, 0.1f);
  EXPECT_EQ(sampling->sampling.repetition_penalty, 1.5f);

  const auto defaults = parse_generation_config(R"({"do_sample": true})");
  ASSERT_TRUE(defaults.ok());
  EXPECT_TRUE(defaults->end_tokens.empty());
  EXPECT_EQ(defaults->sampling.temperature, 1);
  EXPECT_EQ(defaults->sampling.top_k, 50u);
}

TEST(GenerationConfig, BadMembersAreNamed) {
  expect_error(parse_generation_config("{"), "generation_config.json");
  expect_error(parse_generation_config("[]"), "expected an object");
  expect_error(parse_generation_config(R"({"eos_token_id": -1})"), "eos_token_id");
  expect_error(parse_generation_config(R"({"eos_token_id": [1, "x"]})"), "eos_token_id");
  expect_error(parse_generation_config(R"({"eos_token_id": 99999999999})"), "eos_token_id: expected at most 4294967295, found 99999999999");
  expect_error(parse_generation_config(R"({"eos_token_id": 18446744073709551616})"),
               "eos_token_id: expected an integer of 64 bits, found 18446744073709551616");
  expect_error(parse_generation_config(R"({"do_sample": true, "top_k": 4294967296})"),
               "top_k: expected at most 4294967295, found 4294967296");
  expect_error(parse_generation_config(R"({"do_sample": true, "top_k": 100000000000000000000})"),
               "top_k: expected an integer of 64 bits, found 100000000000000000000");
  expect_error(parse_generation_config(R"({"do_sample": 1})"), "do_sample");
  expect_error(parse_generation_config(R"({"do_sample": true, "temperature": -1})"), "temperature");
  expect_error(parse_generation_config(R"({"repetition_penalty": 0})"), "repetition_penalty");
}

}  // namespace
}  // namespace chorus::generation
