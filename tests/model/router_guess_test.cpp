// Guesses at the next layer's experts keep no second copy of a router that the model has as a matrix of its own.
#include "experts/router_guess.h"

#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "experts/expert_system.h"
#include "formats/test_tools.h"
#include "model/failing_backend.h"
#include "models/language_model.h"
#include "models/random_checkpoint.h"

namespace chorus::experts {
namespace {

TEST(RouterGuess, UsesTheModelsRouters) {
  const formats::testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model";
  const models::RandomMoeSizes sizes{2, 64, 32, 8, 3, 4, 2, 16, 64, 512};
  const auto config = models::random_moe_config("olmoe", sizes);
  ASSERT_TRUE(config.ok() && models::write_random_checkpoint(path, *config, {}).ok());
  const auto opened = models::open_language_checkpoint(path);
  ASSERT_TRUE(opened.ok()) << opened.error().to_line();
  const models::LanguageCheckpoint& checkpoint = *opened;
  const auto plan = std::make_shared<FailurePlan>();
  FailingBackend counting(backends::create_cpu_backend({}), plan);
  ExpertOptions options;
  options.expert_ram_bytes = 8ull * 3 * 64 * 32 * 4;
  auto system = open_experts(counting, checkpoint, DType::f32, options);
  ASSERT_TRUE(system.ok()) << system.error().to_line();
  EXPECT_TRUE(plan->weights_made.empty());
  auto loaded = models::LanguageModel::load(counting, checkpoint.blueprint, *checkpoint.weights, (*system)->executor(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_line();
  for (const auto& layer : checkpoint.blueprint.layers) {
    EXPECT_EQ(plan->weights_made[std::get<models::MoeSpec>(layer.feed_forward).router.weight], 1);
  }
  EXPECT_EQ(RouterGuess::copied_bytes(checkpoint.blueprint, DType::f32), 0u);
  // And guesses are made: the second layer's experts are read ahead.
  auto sequence = (*loaded)->new_sequence(40);
  ASSERT_TRUE(sequence.ok());
  uint32_t reads = 0;
  plan->before_read = [&] { ++reads; };
  for (uint32_t token = 0; token < 30; ++token) {
    const models::SequenceStep step{sequence->get(), std::span<const uint32_t>(&token, 1)};
    ASSERT_TRUE((*loaded)->forward(std::span(&step, 1), models::OutputRows::last).ok());
  }
  EXPECT_EQ(reads, 30u * sizes.layers) << "one a layer: routes and guess together";
  EXPECT_GT((*system)->statistics().cache.prefetches, 0u);
  // Without a model the second layer's router is loaded.
  const auto alone = std::make_shared<FailurePlan>();
  FailingBackend other(backends::create_cpu_backend({}), alone);
  ASSERT_TRUE(open_experts(other, path, DType::f32, options).ok());
  EXPECT_EQ(alone->weights_made.size(), 1u);
}

TEST(RouterGuess, CopiesOnlyRoutersThatAreStackedOnASharedExpert) {
  const auto checkpoint = models::open_language_checkpoint(std::string(CHORUS_TEST_DATA) + "/qwen3_5_moe_text");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  uint64_t expected = 0, layers = 0;
  for (const auto& layer : checkpoint->blueprint.layers) {
    const auto& moe = std::get<models::MoeSpec>(layer.feed_forward);
    ASSERT_GT(moe.shared.inner, 0u);
    if (layers++ > 0) expected += uint64_t{moe.experts} * checkpoint->blueprint.hidden * 2;
  }
  ASSERT_GT(expected, 0u);
  EXPECT_EQ(RouterGuess::copied_bytes(checkpoint->blueprint, DType::bf16), expected);
}

}  // namespace
}  // namespace chorus::experts
