#include "models/language_checkpoint.h"

#include <gtest/gtest.h>

#include "formats/test_tools.h"

namespace chorus::models {
namespace {

using formats::testing::expect_error;
using formats::testing::read_all;
using formats::testing::replaced;
using formats::testing::TemporaryFolder;

const std::filesystem::path kData = CHORUS_TEST_DATA;

// A fixture with one text of its header replaced by another of the same length.
Result<LanguageCheckpoint> open_changed(const TemporaryFolder& folder, const std::string& fixture, const std::string& from,
                                        const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  folder.write("config.json", read_all(kData / fixture / "config.json"));
  folder.write("model.safetensors", replaced(read_all(kData / fixture / "model.safetensors"), from, to));
  return open_language_checkpoint(folder.path());
}

TEST(LanguageCheckpoint, WhatBelongsToNothingIsRefused) {
  const TemporaryFolder folder;
  expect_error(open_changed(folder, "olmoe", "\"model.norm.weight\"", "\"model.nerm.weight\""), "no tensor \"model.norm.weight\"");
  expect_error(open_changed(folder, "olmoe", "model.layers.1.mlp.experts.3.up_proj", "model.layers.1.mlp.experts.9.up_proj"),
               "no tensor \"model.layers.1.mlp.experts.3.up_proj.weight\"");
  expect_error(open_changed(folder, "llama", "\"shape\":[160,64]", "\"shape\":[64,160]"),
               "config.json calls for shape [160, 64], found [64, 160]");
}

TEST(LanguageCheckpoint, PredictionLayersAndHeadCopiesAreListed) {
  // One layer less in the configuration: the last layer's tensors are those of a prediction layer.
  const TemporaryFolder folder;
  folder.write("config.json",
               replaced(read_all(kData / "deepseek_v3" / "config.json"), "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3"));
  folder.write("model.safetensors", read_all(kData / "deepseek_v3" / "model.safetensors"));
  const auto checkpoint = open_language_checkpoint(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  ASSERT_FALSE(checkpoint->ignored_tensors.empty());
  for (const std::string& name : checkpoint->ignored_tensors) EXPECT_TRUE(name.starts_with("model.layers.3.")) << name;
  // A family without prediction layers refuses the same.
  folder.write("config.json", replaced(read_all(kData / "qwen3" / "config.json"), "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2"));
  folder.write("model.safetensors", read_all(kData / "qwen3" / "model.safetensors"));
  expect_error(open_language_checkpoint(folder.path()), "expected one of each of the 2 layers, found 3");
  folder.write("config.json",
               replaced(read_all(kData / "qwen3" / "config.json"), "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"));
  const auto tied = open_language_checkpoint(folder.path());
  ASSERT_TRUE(tied.ok()) << tied.error().to_line();
  EXPECT_EQ(tied->ignored_tensors, std::vector<std::string>{"lm_head.weight"});
}

TEST(LanguageCheckpoint, AnUnknownArchitectureIsNamedBeforeItsWeightsAreMissed) {
  const TemporaryFolder folder;
  expect_error(open_language_checkpoint(folder.path()), "config.json");
  folder.write("config.json", R"({"model_type":"kimi_linear"})");
  expect_error(open_language_checkpoint(folder.path()), "found \"kimi_linear\"");
  EXPECT_FALSE(is_language_folder(folder.path()));
  EXPECT_TRUE(is_language_folder(kData / "gpt_oss"));
}

}  // namespace
}  // namespace chorus::models
