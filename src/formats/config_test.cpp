#include "formats/config.h"

#include <gtest/gtest.h>

#include "formats/test_tools.h"
#include "formats/weight_table.h"

namespace chorus::formats {
namespace {

using testing::expect_error;
using testing::read_all;
using testing::replaced;

std::string fixture() { return read_all(std::string(CHORUS_TEST_DATA) + "/qwen3_5_text/config.json"); }

TEST(Config, ReadsTheShippedModel) {
  const auto config = parse_config(read_all(std::string(CHORUS_MODELS) + "/kev-mini-base/config.json"));
  ASSERT_TRUE(config.ok()) << config.error().to_line();
  EXPECT_EQ(config->model_type, "qwen3_5_text");
  EXPECT_EQ(config->hidden_size, 192u);
  EXPECT_EQ(config->layers, 8u);
  EXPECT_EQ(config->intermediate_size, 512u);
  EXPECT_EQ(config->vocab_size, 1536u);
  ASSERT_EQ(config->layer_types.size(), 8u);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(config->layer_types[i] == LayerType::full_attention, i == 3 || i == 7) << i;
  EXPECT_EQ(config->query_heads, 4u);
  EXPECT_EQ(config->kv_heads, 2u);
  EXPECT_EQ(config->head_dim, 64u);
  EXPECT_EQ(config->rotary_dim, 16u);
  EXPECT_EQ(config->rope_theta, 1e7);
  EXPECT_EQ(config->linear_key_heads, 4u);
  EXPECT_EQ(config->linear_value_heads, 8u);
  EXPECT_EQ(config->linear_key_dim, 32u);
  EXPECT_EQ(config->linear_value_dim, 32u);
  EXPECT_EQ(config->conv_channels(), 512u);
  EXPECT_EQ(config->conv_kernel, 4u);
  EXPECT_EQ(config->rms_epsilon, 1e-6);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->max_positions, 4096u);
  EXPECT_EQ(config->eos_token_ids, (std::vector<uint32_t>{1479}));
  EXPECT_EQ(config->pad_token_id, 1477u);
}

// The 0.8B geometry of kev.md 6.1 in the multimodal form, with the values before transformers 5 in their old places.
constexpr const char* kMultimodal = R"({
  "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": true, "vision_config": {"depth": 12},
  "text_config": {
    "model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 3584, "vocab_size": 248320,
    "full_attention_interval": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "rope_theta": 10000000, "partial_rotary_factor": 0.25, "rope_scaling": null, "attn_output_gate": true, "hidden_act": "silu",
    "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "eos_token_id": [248044, 248046], "pad_token_id": null}})";

TEST(Config, ReadsTheMultimodalForm) {
  const auto config = parse_config(kMultimodal);
  ASSERT_TRUE(config.ok()) << config.error().to_line();
  EXPECT_EQ(config->model_type, "qwen3_5");
  EXPECT_EQ(config->layers, 24u);
  for (uint32_t i = 0; i < 24; ++i) EXPECT_EQ(config->layer_types[i] == LayerType::full_attention, i % 4 == 3) << i;
  EXPECT_EQ(config->rotary_dim, 64u);
  EXPECT_EQ(config->rope_theta, 1e7);
  EXPECT_EQ(config->conv_channels(), 6144u);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->eos_token_ids, (std::vector<uint32_t>{248044, 248046}));
  EXPECT_FALSE(config->pad_token_id.has_value());
}

// kev.md 6.1 gives the parameter count of the 0.8B backbone, derived from the published size of the checkpoint.
TEST(Config, WeightTableGivesThePublishedParameterCount) {
  const auto config = parse_config(kMultimodal);
  ASSERT_TRUE(config.ok());
  uint64_t parameters = 0;
  for (const auto& weight : backbone_weights(*config)) {
    uint64_t elements = 1;
    for (const uint64_t extent : weight.shape) elements *= extent;
    parameters += elements;
  }
  EXPECT_EQ(parameters, 752393024u);
}

// kev.md 15: the tiny hybrid configuration has 27 tensors.
TEST(Config, WeightTableOfTheTinyModel) {
  TextConfig config;
  config.hidden_size = 32;
  config.layers = 2;
  config.layer_types = {LayerType::linear_attention, LayerType::full_attention};
  EXPECT_EQ(backbone_weights(config).size(), 27u);
}

struct Refused {
  const char* from;
  const char* to;
  const char* says;
};

TEST(Config, RefusesWhatItCannotRun) {
  const Refused cases[] = {
      {"\"qwen3_5_text\"", "\"llama\"", "model_type: this program runs \"qwen3_5_text\" and the text part of \"qwen3_5\", found \"llama\""},
      {"\"qwen3_5_text\"", "\"qwen3_5_moe_text\"", "found \"qwen3_5_moe_text\""},
      {"\"qwen3_5_text\"", "\"qwen3_5\"", "text_config"},
      {"\"qwen3_5_text\"", "7", "model_type"},
      {"\"model_type\"", "\"model_typo\"", "model_type"},
      {"\"attention_bias\": false", "\"attention_bias\": true", "attention_bias: this program runs false, found true"},
      {"\"attention_bias\": false", "\"attn_output_gate\": false", "attn_output_gate: this program runs true, found false"},
      {"\"attention_bias\": false", "\"quantization_config\": {\"bits\": 4}", "quantization_config"},
      {"\"silu\"", "\"gelu\"", "hidden_act: this program runs \"silu\", found \"gelu\""},
      {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", "rope_type: this program runs \"default\", found \"yarn\""},
      {"\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3", "linear_conv_kernel_dim: this program runs 4, found 3"},
      {"\"full_attention\"", "\"sliding_attention\"", "found \"sliding_attention\""},
      {"\"full_attention\"", "\"full_attention\", \"full_attention\"", "expected num_hidden_layers = 4 entries, found 5"},
      {"\"hidden_size\": 64", "\"hidden_size\": 0", "hidden_size: expected 1 to 1048576, found 0"},
      {"\"hidden_size\": 64", "\"hidden_size\": -1", "hidden_size"},
      {"\"hidden_size\": 64", "\"hidden_size\": 64.0", "hidden_size"},
      {"\"hidden_size\": 64", "\"hidden_size\": 1e3", "hidden_size"},
      {"\"hidden_size\": 64", "\"hidden_size\": \"64\"", "hidden_size"},
      {"\"hidden_size\": 64", "\"hidden_size\": 18446744073709551616", "hidden_size"},
      {"\"hidden_size\": 64", "\"hidden_size\": 4294967297", "hidden_size"},
      {"\"hidden_size\": 64", "\"hidden_site\": 64", "hidden_size: missing"},
      {"\"hidden_size\": 64", "\"hidden_size\": 64, \"hidden_size\": 65", "hidden_size"},
      {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 1000000", "num_hidden_layers: expected 1 to 1024"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "3 is no multiple of num_key_value_heads 2"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 1048576", "is over the limit of 1048576"},
      {"\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 5", "5 is no multiple of linear_num_key_heads 2"},
      {"\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 1048576", "is over the limit of 1048576"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "rms_norm_eps: expected a number between 0 and 1"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN", "reading config.json"},
      {"\"rope_theta\": 10000000.0", "\"rope_theta\": -1", "rope_theta: expected 1 to 1e15"},
      {"\"rope_theta\": 10000000.0", "\"rope_data\": 1", "rope_theta: missing"},
      {"\"eos_token_id\": 2", "\"eos_token_id\": 512", "eos_token_id: expected a token id below vocab_size 512, found 512"},
      {"\"pad_token_id\": 0", "\"pad_token_id\": -1", "pad_token_id"},
      {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": \"yes\"", "tie_word_embeddings"},
  };
  ASSERT_TRUE(parse_config(fixture()).ok());
  for (const auto& refused : cases) {
    SCOPED_TRACE(refused.to);
    expect_error(parse_config(replaced(fixture(), refused.from, refused.to)), refused.says);
  }
}

TEST(Config, RotaryFactorComesFromEitherPlace) {
  const std::string inner = "\"partial_rotary_factor\": 0.25,\n    \"rope_theta\"";
  auto without_inner = parse_config(
      replaced(replaced(fixture(), inner, "\"rope_theta\""), "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.5"));
  ASSERT_TRUE(without_inner.ok()) << without_inner.error().to_line();
  EXPECT_EQ(without_inner->rotary_dim, 16u);
  const auto set_inner = [&](const char* value) {
    return replaced(fixture(), inner, "\"partial_rotary_factor\": " + std::string(value) + ", \"rope_theta\"");
  };
  EXPECT_EQ(parse_config(set_inner("1.0"))->rotary_dim, 32u);
  expect_error(parse_config(set_inner("0")), "partial_rotary_factor: expected a number above 0 up to 1");
  expect_error(parse_config(set_inner("1.5")), "partial_rotary_factor: expected a number above 0 up to 1");
  expect_error(parse_config(set_inner("0.1")), "3 rotary dimensions");
  expect_error(parse_config(set_inner("0.01")), "0 rotary dimensions");
}

TEST(Config, RefusesTextThatIsNoConfiguration) {
  expect_error(parse_config(""), "reading config.json");
  expect_error(parse_config("[]"), "config.json");
  expect_error(parse_config("{}"), "model_type");
  expect_error(parse_config(std::string(1000000, '[')), "reading config.json");
  const std::string whole = fixture();
  for (size_t length = 0; length + 2 < whole.size(); length += 7) EXPECT_FALSE(parse_config(whole.substr(0, length)).ok()) << length;
}

}  // namespace
}  // namespace chorus::formats
