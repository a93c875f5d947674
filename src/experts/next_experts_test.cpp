#include "experts/next_experts.h"

#include <gtest/gtest.h>

#include <array>

#include "experts/expert_usage.h"
#include "formats/test_tools.h"

namespace chorus::experts {
namespace {

constexpr std::array<uint32_t, 4> kLayerCount = {4, 0, 6, 4};

TEST(NextExperts, TheNextLayerIsTheNextWithExperts) {
  const NextExperts next(kLayerCount);
  EXPECT_EQ(next.next_layer(0), 2u);
  EXPECT_EQ(next.next_layer(2), 3u);
  EXPECT_EQ(next.next_layer(3), 0u);
}

TEST(NextExperts, LikelyIsWhatWasSeenMost) {
  NextExperts next(kLayerCount);
  const std::array<uint32_t, 1> one = {1};
  EXPECT_TRUE(next.likely(0, one, 8).empty());
  next.note(0, std::array<uint32_t, 2>{0, 1}, std::array<uint32_t, 2>{5, 2});
  next.note(0, std::array<uint32_t, 2>{1, 3}, std::array<uint32_t, 2>{2, 4});
  const auto likely = next.likely(0, one, 8);
  ASSERT_EQ(likely.size(), 3u);
  EXPECT_EQ(likely[0], (ExpertKey{2, 2}));
  EXPECT_EQ(likely[1], (ExpertKey{2, 4}));
  EXPECT_EQ(likely[2], (ExpertKey{2, 5}));
  EXPECT_EQ(next.likely(0, one, 1).size(), 1u);
}

TEST(NextExperts, OrderLastsAndNoNumberIsTooLarge) {
  NextExperts next(kLayerCount);
  for (int i = 0; i < 2000; ++i) {
    next.note(0, std::array<uint32_t, 1>{1}, std::array<uint32_t, 1>{2});
    if (i % 2 == 0) next.note(0, std::array<uint32_t, 1>{1}, std::array<uint32_t, 1>{3});
  }
  next.note(0, std::array<uint32_t, 1>{0xffffffff}, std::array<uint32_t, 1>{0xffffffff});  // rows without routes
  const auto likely = next.likely(0, std::array<uint32_t, 2>{1, 0xffffffff}, 8);
  ASSERT_EQ(likely.size(), 2u);
  EXPECT_EQ(likely[0].expert, 2u);
  EXPECT_EQ(likely[1].expert, 3u);
}

TEST(GuessJudge, StopsWhenMostGuessesAreWrongAndTriesAgain) {
  GuessJudge judge;
  EXPECT_TRUE(judge.worth_making(0, 0));
  EXPECT_TRUE(judge.worth_making(63, 0));  // too few to tell
  EXPECT_FALSE(judge.worth_making(64, 31));
  int made = 0;
  for (uint64_t i = 0; i < 10 * GuessJudge::kTryEvery; ++i) made += judge.worth_making(64, 31);
  EXPECT_EQ(made, 10);
  EXPECT_TRUE(judge.worth_making(128, 63));  // 32 of the last 64
  EXPECT_TRUE(judge.worth_making(128, 63));
}

TEST(ExpertUsage, KeepsHalfOfOlderRuns) {
  const formats::testing::TemporaryFolder folder;
  const auto path = folder.path() / "usage.json";
  ExpertUsage first(kLayerCount);
  EXPECT_TRUE(first.empty());
  EXPECT_TRUE(first.load(path).ok());  // no file yet
  first.add({2, 5}, 8);
  first.add({0, 1}, 2);
  ASSERT_TRUE(first.save(path).ok());
  ExpertUsage second(kLayerCount);
  second.add({3, 0}, 3);
  ASSERT_TRUE(second.load(path).ok());
  EXPECT_EQ(second.uses({2, 5}), 4);
  EXPECT_EQ(second.uses({0, 1}), 1);
  const auto most = second.most_used(2);
  ASSERT_EQ(most.size(), 2u);
  EXPECT_EQ(most[0], (ExpertKey{2, 5}));
  EXPECT_EQ(most[1], (ExpertKey{3, 0}));
  EXPECT_EQ(second.most_used(100).size(), 3u);
}

TEST(ExpertUsage, AFileOfAnotherModelIsAnErrorAndChangesNothing) {
  const formats::testing::TemporaryFolder folder;
  const auto path = folder.path() / "usage.json";
  ASSERT_TRUE(ExpertUsage(kLayerCount).save(path).ok());
  constexpr std::array<uint32_t, 2> kOther = {4, 4};
  ExpertUsage other(kOther);
  other.add({0, 0});
  EXPECT_FALSE(other.load(path).ok());
  EXPECT_EQ(other.uses({0, 0}), 1);
}

}  // namespace
}  // namespace chorus::experts
