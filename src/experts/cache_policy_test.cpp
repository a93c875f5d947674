#include "experts/cache_policy.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <set>

namespace chorus::experts {
namespace {

constexpr std::array<uint32_t, 3> kLayers = {4, 0, 4};

// Puts an expert into a slot, uses it and lets it go.
void put(CachePolicy& policy, ExpertKey key) {
  policy.note_use(key);
  const auto room = policy.make_room(key, CachePolicy::Purpose::use);
  ASSERT_TRUE(room.has_value());
  policy.release(room->slot);
}

TEST(CachePolicy, KnowsTheModelsExperts) {
  const CachePolicy policy(2, kLayers);
  EXPECT_TRUE(policy.knows({0, 3}));
  EXPECT_FALSE(policy.knows({0, 4}));
  EXPECT_FALSE(policy.knows({1, 0}));
  EXPECT_TRUE(policy.knows({2, 3}));
  EXPECT_FALSE(policy.knows({3, 0}));
}

TEST(CachePolicy, EvictsTheLeastUsed) {
  CachePolicy policy(2, kLayers);
  put(policy, {0, 0});
  put(policy, {0, 1});
  policy.note_use({0, 0});
  const auto room = policy.make_room({0, 2}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 1}));
  EXPECT_FALSE(policy.find({0, 1}));
  EXPECT_TRUE(policy.find({0, 0}));
  EXPECT_EQ(policy.find({0, 2}), room->slot);
}

TEST(CachePolicy, OldUsesCountLess) {
  CachePolicy policy(2, kLayers, 1.0);
  for (int i = 0; i < 3; ++i) policy.note_use({0, 0});
  put(policy, {0, 0});  // four uses, four half lives ago: 0.25
  EXPECT_DOUBLE_EQ(policy.worth({0, 0}), 4);
  for (int i = 0; i < 4; ++i) policy.begin_pass();
  EXPECT_NEAR(policy.worth({0, 0}), 0.25, 1e-12);
  put(policy, {0, 1});  // one use now
  const auto room = policy.make_room({0, 2}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 0}));
}

TEST(CachePolicy, WorthStaysFiniteOverManyPasses) {
  CachePolicy policy(1, kLayers, 0.01);
  put(policy, {0, 0});
  for (int i = 0; i < 100000; ++i) policy.begin_pass();
  EXPECT_EQ(policy.worth({0, 0}), 0);
  policy.note_use({0, 0});
  EXPECT_NEAR(policy.worth({0, 0}), 1, 1e-12);
}

TEST(CachePolicy, OfEqualsTheLastUsedGoesFirst) {
  CachePolicy policy(3, kLayers);
  put(policy, {0, 0});
  put(policy, {0, 1});
  put(policy, {0, 2});
  const auto room = policy.make_room({0, 3}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 2}));
}

TEST(CachePolicy, NeverEvictsALeasedExpert) {
  CachePolicy policy(2, kLayers);
  put(policy, {0, 0});
  put(policy, {0, 1});
  const uint32_t slot = *policy.find({0, 1});
  policy.lease(slot);
  policy.lease(slot);
  policy.release(slot);  // one lease is left
  const auto room = policy.make_room({0, 2}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 0}));
  EXPECT_FALSE(policy.make_room({0, 3}, CachePolicy::Purpose::use));  // both are leased
  EXPECT_EQ(policy.leased_slots(), 2u);
}

TEST(CachePolicy, StaleEntriesAreIgnored) {
  CachePolicy policy(2, kLayers);
  put(policy, {0, 0});
  put(policy, {0, 1});
  // 1 was of least worth when it entered the queue; its later uses leave that entry behind.
  for (int i = 0; i < 3; ++i) policy.note_use({0, 1});
  policy.note_use({0, 0});
  const auto room = policy.make_room({0, 2}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 0}));
  EXPECT_GT(policy.stale_entries(), 0u);
}

TEST(CachePolicy, PinnedGoLastAndNeverForAGuess) {
  CachePolicy policy(2, kLayers);
  const std::array<ExpertKey, 1> pinned = {ExpertKey{0, 0}};
  policy.set_pinned(pinned);
  put(policy, {0, 0});
  put(policy, {0, 1});
  for (int i = 0; i < 5; ++i) policy.note_use({0, 1});
  auto room = policy.make_room({0, 2}, CachePolicy::Purpose::guess);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 1}));  // of more worth, but not pinned
  EXPECT_FALSE(policy.make_room({0, 3}, CachePolicy::Purpose::guess));
  room = policy.make_room({0, 3}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room && room->evicted);
  EXPECT_EQ(*room->evicted, (ExpertKey{0, 0}));
}

TEST(CachePolicy, ForgottenSlotsAreFree) {
  CachePolicy policy(1, kLayers);
  const auto room = policy.make_room({2, 1}, CachePolicy::Purpose::use);
  ASSERT_TRUE(room);
  policy.forget(room->slot);
  EXPECT_FALSE(policy.find({2, 1}));
  EXPECT_EQ(policy.leased_slots(), 0u);
  const auto again = policy.make_room({2, 2}, CachePolicy::Purpose::use);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->evicted);
}

// Against a plain model: a map of contents, with the worth computed from the uses' times.
TEST(CachePolicy, AgreesWithAPlainModelOnRandomTraces) {
  constexpr double kHalfLife = 3;
  std::mt19937 random(7);
  CachePolicy policy(5, kLayers, kHalfLife);
  std::array<std::vector<std::pair<int, int>>, 8> uses;  // (pass, order) of each expert; layers 0 and 2
  std::set<int> held;
  int pass = 0, order = 0, evictions = 0;
  const auto worth = [&](int expert) {
    double sum = 0;
    for (const auto& [at, unused] : uses[expert]) sum += std::exp2((at - pass) / kHalfLife);
    return sum;
  };
  for (int step = 0; step < 4000; ++step) {
    if (random() % 8 == 0) {
      policy.begin_pass();
      ++pass;
    }
    const int expert = static_cast<int>(std::min(random() % 8, random() % 8));
    const ExpertKey key{expert < 4 ? 0u : 2u, static_cast<uint32_t>(expert % 4)};
    uses[expert].emplace_back(pass, order++);
    policy.note_use(key);
    ASSERT_EQ(policy.find(key).has_value(), held.contains(expert));
    ASSERT_NEAR(policy.worth(key), worth(expert), 1e-9 * worth(expert));
    if (held.contains(expert)) continue;
    const auto room = policy.make_room(key, CachePolicy::Purpose::use);
    ASSERT_TRUE(room);
    policy.release(room->slot);
    if (room->evicted) {
      const int gone = static_cast<int>(room->evicted->layer / 2 * 4 + room->evicted->expert);
      ++evictions;
      for (const int other : held) ASSERT_LE(worth(gone), worth(other) * (1 + 1e-9)) << "step " << step;
      held.erase(gone);
    }
    held.insert(expert);
  }
  EXPECT_GT(evictions, 100);
}

}  // namespace
}  // namespace chorus::experts
