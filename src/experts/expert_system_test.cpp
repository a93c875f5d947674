#include "experts/expert_system.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "backends/cpu/cpu_backend.h"
#include "experts/cached_test_tools.h"
#include "experts/expert_pack.h"
#include "experts/packed_store.h"
#include "experts/shard_store.h"
#include "formats/test_tools.h"
#include "models/language_model.h"
#include "models/random_checkpoint.h"

namespace chorus::experts {
namespace {

using formats::testing::TemporaryFolder;
using testing::FakeStore;

std::unique_ptr<compute::Backend> make_backend() {
  backends::CpuOptions options;
  options.threads = 2;
  return backends::create_cpu_backend(options);
}

TEST(CachedExperts, RealFilesGiveTheSameBitsToo) {
  const auto backend = make_backend();
  const TemporaryFolder folder;
  const models::RandomMoeSizes sizes{3, 256, 96, 8, 3, 4, 2, 16, 64, 512};
  const auto config = models::random_moe_config("qwen3_moe", sizes);
  ASSERT_TRUE(config.ok());
  ASSERT_TRUE(models::write_random_checkpoint(folder.path() / "model", *config, {1, DType::bf16, 1 << 20, {}}).ok());
  const auto checkpoint = models::open_language_checkpoint(folder.path() / "model");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  const std::array<uint32_t, 3> budgets = {1, 5, 15};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto store = open_shard_store(*checkpoint, dtype, true);
    ASSERT_TRUE(store.ok()) << store.error().to_line();
    testing::check_every_budget(*backend, **store, budgets);
    const auto path = folder.path() / std::string(dtype_name(dtype));
    ASSERT_TRUE(write_model_pack(*checkpoint, store->get(), path).ok());
    const auto packed = models::open_language_checkpoint(path);
    ASSERT_TRUE(packed.ok()) << packed.error().to_line();
    const auto packed_store = open_packed_store(*packed, dtype, true);
    ASSERT_TRUE(packed_store.ok()) << packed_store.error().to_line();
    testing::check_every_budget(*backend, **packed_store, budgets);
  }
}

struct SystemFixture : ::testing::Test {
  void SetUp() override {
    backend = make_backend();
    const models::RandomMoeSizes sizes{2, 64, 32, 8, 3, 4, 2, 16, 64, 512};
    const auto config = models::random_moe_config("olmoe", sizes);
    ASSERT_TRUE(config.ok());
    ASSERT_TRUE(models::write_random_checkpoint(model(), *config, {}).ok());
    auto opened = models::open_language_checkpoint(model());
    ASSERT_TRUE(opened.ok()) << opened.error().to_line();
    checkpoint = std::move(opened).value();
  }
  std::filesystem::path model() const { return folder.path() / "model"; }
  Result<std::unique_ptr<ExpertSystem>> open(ExpertOptions options) {
    options.log = [this](LogLevel, std::string_view line) { log += std::string(line) + "\n"; };
    return open_experts(*backend, checkpoint, DType::f32, options);
  }
  Result<std::vector<float>> run(ExpertSystem& system, uint32_t seed) {
    const FakeStore like({8, 8}, {64, 32, DType::f32, false});
    std::vector<testing::Call> pass;
    for (uint32_t layer = 0; layer < 2; ++layer) pass.push_back(testing::make_call(like, layer, 2, 3, seed));
    return testing::run_pass(*backend, *system.executor(), pass, 64, 3);
  }

  static constexpr uint64_t kRecord = 3ull * 64 * 32 * 4;
  TemporaryFolder folder;
  std::unique_ptr<compute::Backend> backend;
  models::LanguageCheckpoint checkpoint;
  std::string log;
};

TEST_F(SystemFixture, DecidesByTheBudget) {
  auto all = open({});
  ASSERT_TRUE(all.ok()) << all.error().to_line();
  EXPECT_TRUE((*all)->statistics().resident);
  EXPECT_NE((*all)->plan().find("16 experts of 24.0 KiB: all in memory"), std::string::npos) << (*all)->plan();
  ExpertOptions options;
  options.expert_ram_bytes = 3 * kRecord + 5;
  auto some = open(options);
  ASSERT_TRUE(some.ok()) << some.error().to_line();
  EXPECT_FALSE((*some)->statistics().resident);
  EXPECT_EQ((*some)->statistics().host_slots, 3u);
  EXPECT_NE((*some)->plan().find("3 (72.0 KiB) in memory, the rest from disk"), std::string::npos) << (*some)->plan();
  const auto a = run(**all, 3), b = run(**some, 3);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(testing::same_bits(*a, *b));
  options.expert_ram_bytes = kRecord - 1;
  const auto none = open(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(
      none.error().message.find("--expert-ram: expected at least the 24576 bytes (24.0 KiB) of one expert of this model, found 24575"),
      std::string::npos)
      << none.error().message;
}

// Logits of a whole model, prompt and tokens after it, under one budget.
std::vector<float> logits_under(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint, const ExpertOptions& options,
                                CacheStatistics& numbers) {
  std::vector<float> all;
  const auto run = [&]() -> Status {
    CHORUS_ASSIGN(const auto system, open_experts(backend, checkpoint, DType::f32, options));
    CHORUS_ASSIGN(const auto model,
                  models::LanguageModel::load(backend, checkpoint.blueprint, *checkpoint.weights, system->executor(), {}));
    CHORUS_ASSIGN(const auto sequence, model->new_sequence(32));
    std::vector<uint32_t> tokens = {5, 9, 33, 2, 60, 17, 8};
    for (int step = 0; step < 8; ++step) {
      const models::SequenceStep next{sequence.get(), tokens};
      CHORUS_ASSIGN(const models::Logits logits, model->forward({&next, 1}, models::OutputRows::last));
      std::vector<float> row(checkpoint.blueprint.vocabulary);
      CHORUS_TRY(backend.read(*logits.buffer, 0, std::as_writable_bytes(std::span(row))));
      tokens = {static_cast<uint32_t>(std::max_element(row.begin(), row.end()) - row.begin())};
      all.insert(all.end(), row.begin(), row.end());
    }
    numbers = system->statistics().cache;
    return {};
  };
  const auto status = run();
  EXPECT_TRUE(status.ok()) << status.error().to_line();
  return all;
}

TEST(ModelUnderABudget, LogitsAreTheSameBits) {
  const auto backend = make_backend();
  const TemporaryFolder folder;
  const models::RandomMoeSizes sizes{4, 64, 32, 8, 3, 4, 2, 16, 64, 512};
  const auto config = models::random_moe_config("qwen3_moe", sizes);
  ASSERT_TRUE(config.ok());
  ASSERT_TRUE(models::write_random_checkpoint(folder.path() / "model", *config, {}).ok());
  const auto checkpoint = models::open_language_checkpoint(folder.path() / "model");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  constexpr uint64_t kRecord = 3ull * 64 * 32 * 4;
  ExpertOptions options;
  options.usage_file = "";
  CacheStatistics numbers;
  const auto expected = logits_under(*backend, *checkpoint, options, numbers);
  ASSERT_EQ(expected.size(), 8u * 64);
  for (const uint64_t experts : {1, 4, 16, 31}) {
    for (const bool prefetch : {false, true}) {
      options.expert_ram_bytes = experts * kRecord;
      options.prefetch = prefetch;
      EXPECT_TRUE(testing::same_bits(logits_under(*backend, *checkpoint, options, numbers), expected)) << experts << " " << prefetch;
      EXPECT_GT(numbers.misses, 0u);
      EXPECT_EQ(numbers.prefetches > 0, prefetch && experts >= 4) << experts;
    }
  }
}

TEST_F(SystemFixture, KeepsUsageBesideTheModelAndReadsItAgain) {
  ExpertOptions options;
  options.expert_ram_bytes = 6 * kRecord;
  {
    auto system = open(options);
    ASSERT_TRUE(system.ok());
    ASSERT_TRUE(run(**system, 3).ok());
  }
  const auto file = usage_file_of(model());
  EXPECT_EQ(file, model() / ".chorus-experts.json");
  ASSERT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(log, "");
  auto again = open(options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(log, "");
  ASSERT_TRUE(run(**again, 3).ok());
  EXPECT_EQ(usage_file_of(folder.path() / "packed.chorus"), folder.path() / ".packed.chorus.chorus-experts.json");
}

TEST_F(SystemFixture, ABadUsageFileIsSaidOnceAndDoesNotMatter) {
  for (const char* text : {"{", "{\"format\": \"other\", \"layers\": []}", "{\"format\": \"chorus-expert-usage\", \"layers\": [[1, 2]]}",
                           "{\"format\": \"chorus-expert-usage\", \"layers\": [[1,1,1,1,1,1,1,1],[1,1,1,1,1,1,1,-1]]}"}) {
    folder.write("model/.chorus-experts.json", text);
    log.clear();
    ExpertOptions options;
    options.expert_ram_bytes = 6 * kRecord;
    {
      auto system = open(options);
      ASSERT_TRUE(system.ok()) << system.error().to_line();
      ASSERT_TRUE(run(**system, 3).ok());
      EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
      EXPECT_NE(log.find(".chorus-experts.json"), std::string::npos) << log;
    }
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;  // the good file of this run took its place
  }
}

TEST_F(SystemFixture, AUsageFileThatCannotBeWrittenIsSaidOnce) {
  ExpertOptions options;
  options.expert_ram_bytes = 6 * kRecord;
  options.usage_file = folder.path() / "none" / "usage.json";
  auto system = open(options);
  ASSERT_TRUE(system.ok());
  ASSERT_TRUE(run(**system, 3).ok());
  (*system)->save_usage();
  (*system)->save_usage();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST_F(SystemFixture, AMissingShardIsAnErrorOfThatCall) {
  ExpertOptions options;
  options.expert_ram_bytes = 2 * kRecord;
  options.usage_file = "";
  auto system = open(options);
  ASSERT_TRUE(system.ok());
  std::filesystem::resize_file(model() / "model.safetensors", 4096);
  const auto out = run(**system, 3);
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("layer 0, expert "), std::string::npos) << out.error().message;
  EXPECT_NE(out.error().message.find("model.safetensors"), std::string::npos) << out.error().message;
}

}  // namespace
}  // namespace chorus::experts
