#include "experts/expert_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "experts/store_test_tools.h"

namespace chorus::experts {
namespace {

using testing::FakeStore;

constexpr compute::ExpertShape kShape{8, 8, DType::f32, false};

struct Fixture {
  explicit Fixture(uint32_t slots, uint32_t threads = 2) : memory(slots, std::vector<std::byte>(store.record_bytes())) {
    SlotMemory slot_memory{slots, [this](uint32_t slot) { return std::span<std::byte>(memory[slot]); }};
    auto made = ExpertCache::create(store, slot_memory, threads, [this] { return now.load(); });
    EXPECT_TRUE(made.ok());
    cache = std::move(made).value();
  }
  ~Fixture() { store.let_go(); }

  ExpertLease acquire(ExpertKey key) {
    auto lease = cache->acquire(key);
    EXPECT_TRUE(lease.ok() && lease->has_value()) << place_text(key);
    return lease.ok() && *lease ? std::move(**lease) : ExpertLease();
  }
  ExpertLease load(ExpertKey key) {
    ExpertLease lease = acquire(key);
    const auto status = cache->wait(lease);
    EXPECT_TRUE(status.ok()) << place_text(key);
    return lease;
  }
  bool holds_right_bytes(const ExpertLease& lease) const { return memory[lease.slot()] == store.record_of(lease.key()); }

  FakeStore store{{4, 0, 4}, kShape};
  std::vector<std::vector<std::byte>> memory;
  std::atomic<double> now{0};
  std::unique_ptr<ExpertCache> cache;
};

TEST(ExpertCache, ReadsOnceAndHitsThen) {
  Fixture f(2);
  {
    const auto lease = f.load({0, 1});
    EXPECT_TRUE(f.holds_right_bytes(lease));
  }
  {
    const auto lease = f.load({0, 1});
    EXPECT_TRUE(f.holds_right_bytes(lease));
  }
  const auto numbers = f.cache->statistics();
  EXPECT_EQ(numbers.hits, 1u);
  EXPECT_EQ(numbers.misses, 1u);
  EXPECT_EQ(numbers.reads, 1u);
  EXPECT_EQ(numbers.bytes_read, f.store.record_bytes());
  EXPECT_EQ(f.store.finished({0, 1}), 1);
}

TEST(ExpertCache, EveryExpertThroughOneSlot) {
  Fixture f(1);
  for (int round = 0; round < 3; ++round) {
    for (const uint32_t layer : {0u, 2u}) {
      for (uint32_t expert = 0; expert < 4; ++expert) {
        const auto lease = f.load({layer, expert});
        EXPECT_TRUE(f.holds_right_bytes(lease));
      }
    }
  }
  EXPECT_EQ(f.cache->statistics().evictions, 23u);
}

TEST(ExpertCache, LeasedExpertsStayAndNoRoomIsSaid) {
  Fixture f(2);
  auto first = f.load({0, 0});
  const auto second = f.load({0, 1});
  auto third = f.cache->acquire({0, 2});
  ASSERT_TRUE(third.ok());
  EXPECT_FALSE(third->has_value());
  EXPECT_TRUE(f.holds_right_bytes(first));
  EXPECT_TRUE(f.holds_right_bytes(second));
  first = ExpertLease();
  const auto fourth = f.load({0, 2});
  EXPECT_TRUE(f.holds_right_bytes(fourth));
  EXPECT_TRUE(f.holds_right_bytes(second));
}

TEST(ExpertCache, UnknownExpertsAreAnError) {
  Fixture f(2);
  for (const ExpertKey key : {ExpertKey{0, 4}, ExpertKey{1, 0}, ExpertKey{9, 0}}) {
    const auto lease = f.cache->acquire(key);
    ASSERT_FALSE(lease.ok());
    EXPECT_NE(lease.error().message.find(place_text(key)), std::string::npos);
  }
}

TEST(ExpertCache, AReadThatFailsTwiceIsTriedAgain) {
  Fixture f(2);
  f.store.fail({0, 3}, 2);
  const auto lease = f.load({0, 3});
  EXPECT_TRUE(f.holds_right_bytes(lease));
}

TEST(ExpertCache, AnErrorNamesTheExpertAndEndsOnlyItsLease) {
  Fixture f(2, 1);
  const auto other = f.load({0, 0});
  f.store.fail({2, 3}, 100);
  {
    auto lease = f.acquire({2, 3});
    const auto status = f.cache->wait(lease);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::io_failed);
    EXPECT_NE(status.error().message.find("layer 2, expert 3"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("tried 3 times"), std::string::npos) << status.error().message;
  }
  EXPECT_FALSE(f.cache->holds({2, 3}));
  EXPECT_TRUE(f.holds_right_bytes(other));
  f.store.fail({2, 3}, 0);
  const auto again = f.load({2, 3});  // the slot is free again, and the expert can be read again
  EXPECT_TRUE(f.holds_right_bytes(again));
}

TEST(ExpertCache, DamageIsNotReadAgain) {
  Fixture f(2);
  f.store.fail({0, 1}, 1, ErrorCode::invalid_input);
  auto lease = f.acquire({0, 1});
  const auto status = f.cache->wait(lease);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_input);
}

TEST(ExpertCache, ALeaseDroppedWhileReadingKeepsTheSlotUntilTheEnd) {
  Fixture f(1);
  f.store.hold({0, 0});
  { const auto lease = f.acquire({0, 0}); }
  f.store.wait_until_begun({0, 0});
  std::thread helper([&] { f.store.let_go(); });
  const auto lease = f.load({0, 1});  // waits for the read that is under way
  helper.join();
  EXPECT_TRUE(f.holds_right_bytes(lease));
}

TEST(ExpertCache, AnErrorNobodyWaitsForIsForgotten) {
  Fixture f(1);
  f.store.fail({0, 0}, 1, ErrorCode::invalid_input);
  { const auto lease = f.acquire({0, 0}); }
  const auto lease = f.load({0, 1});
  EXPECT_TRUE(f.holds_right_bytes(lease));
  EXPECT_FALSE(f.cache->holds({0, 0}));
}

TEST(ExpertCache, WaitsAreTimedByTheClock) {
  Fixture f(2);
  f.store.hold({0, 0});
  auto lease = f.acquire({0, 0});
  std::thread helper([&] {
    f.store.wait_until_begun({0, 0});
    f.now = 2.5;
    f.store.let_go();
  });
  const double before = f.cache->statistics().seconds_waited;
  EXPECT_TRUE(f.cache->wait(lease).ok());
  helper.join();
  const double waited = f.cache->statistics().seconds_waited - before;
  EXPECT_TRUE(waited == 2.5 || waited == 0) << waited;  // 0: the read had ended before the wait began
}

TEST(ExpertCache, PrefetchedExpertsAreHits) {
  Fixture f(8);
  const std::array<ExpertKey, 2> guesses = {ExpertKey{2, 0}, ExpertKey{2, 1}};
  f.cache->prefetch(guesses);
  const auto first = f.load({2, 0});
  EXPECT_TRUE(f.holds_right_bytes(first));
  const auto numbers = f.cache->statistics();
  EXPECT_EQ(numbers.prefetches, 2u);
  EXPECT_EQ(numbers.prefetches_used, 1u);
  EXPECT_EQ(f.store.begun({2, 0}), 3);  // three parts, each once
}

TEST(ExpertCache, PrefetchTakesAQuarterOfTheSlotsAtMost) {
  Fixture f(8, 1);
  f.store.hold_all();
  const std::array<ExpertKey, 4> guesses = {ExpertKey{2, 0}, ExpertKey{2, 1}, ExpertKey{2, 2}, ExpertKey{2, 3}};
  f.cache->prefetch(guesses);
  f.cache->prefetch(guesses);
  EXPECT_EQ(f.cache->statistics().prefetches, 2u);
  Fixture small(3);
  small.cache->prefetch(guesses);
  EXPECT_EQ(small.cache->statistics().prefetches, 0u);
}

TEST(ExpertCache, GuessesThatHaveNotBegunAreDropped) {
  Fixture f(8, 1);
  f.store.hold({0, 0});
  const auto busy = f.acquire({0, 0});  // the only reading thread is busy
  f.store.wait_until_begun({0, 0});
  const std::array<ExpertKey, 2> guesses = {ExpertKey{2, 0}, ExpertKey{2, 1}};
  f.cache->prefetch(guesses);
  const std::array<ExpertKey, 1> wanted = {ExpertKey{2, 1}};
  f.cache->drop_guesses_except(wanted);
  EXPECT_FALSE(f.cache->holds({2, 0}));
  EXPECT_TRUE(f.cache->holds({2, 1}));
  f.store.let_go();
}

TEST(ExpertCache, RoomIsTakenFromGuessesBeforeGivingUp) {
  Fixture f(4, 1);
  f.store.hold({0, 0});
  auto a = f.acquire({0, 0}), b = f.acquire({0, 1}), c = f.acquire({0, 2});
  f.store.wait_until_begun({0, 0});
  const std::array<ExpertKey, 1> guess = {ExpertKey{2, 0}};
  f.cache->prefetch(guess);
  EXPECT_TRUE(f.cache->holds({2, 0}));
  auto d = f.acquire({0, 3});
  EXPECT_FALSE(f.cache->holds({2, 0}));
  f.store.let_go();
  for (auto* lease : {&a, &b, &c, &d}) {
    EXPECT_TRUE(f.cache->wait(*lease).ok());
    EXPECT_TRUE(f.holds_right_bytes(*lease));
  }
}

TEST(ExpertCache, WarmsFreeSlotsOnly) {
  Fixture f(2, 1);
  const auto held = f.load({0, 0});
  const std::array<ExpertKey, 3> keys = {ExpertKey{2, 0}, ExpertKey{2, 1}, ExpertKey{2, 2}};
  f.cache->warm(keys);
  EXPECT_TRUE(f.cache->holds({2, 0}));
  EXPECT_FALSE(f.cache->holds({2, 1}));
  EXPECT_TRUE(f.holds_right_bytes(held));
}

TEST(ExpertCache, NoSlotsAreAnError) {
  const FakeStore store({1}, kShape);
  const auto cache = ExpertCache::create(store, {}, 1);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.error().code, ErrorCode::invalid_argument);
}

// Many steps of acquiring, guessing and letting go: whatever happens, a lease's record holds its expert.
TEST(ExpertCache, RandomUseKeepsEveryRecordRight) {
  Fixture f(5, 3);
  uint32_t state = 5;
  const auto draw = [&](uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % below;
  };
  std::vector<ExpertLease> leases;
  for (int step = 0; step < 3000; ++step) {
    const ExpertKey key{draw(2) * 2, draw(4)};
    if (draw(4) == 0) {
      const std::array<ExpertKey, 1> guess = {key};
      draw(2) == 0 ? f.cache->prefetch(guess) : f.cache->drop_guesses_except(guess);
      continue;
    }
    if (draw(8) == 0) f.cache->begin_pass();
    if (draw(3) == 0) leases.clear();
    auto lease = f.cache->acquire(key);
    ASSERT_TRUE(lease.ok());
    if (!*lease) continue;
    ASSERT_TRUE(f.cache->wait(**lease).ok());
    leases.push_back(std::move(**lease));
    for (const auto& each : leases) ASSERT_TRUE(f.holds_right_bytes(each)) << "step " << step;
  }
}

}  // namespace
}  // namespace chorus::experts
