#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace chorus {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceWhateverTheThreadCount) {
  for (uint32_t threads : {1u, 2u, 3u, 8u}) {
    auto pool = ThreadPool::create(threads);
    ASSERT_TRUE(pool.ok()) << pool.error().to_line();
    EXPECT_EQ((*pool)->threads(), threads);
    for (uint64_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> runs(count);
      std::atomic<bool> worker_in_range{true};
      (*pool)->run(count, [&](uint64_t index, uint32_t worker) {
        ++runs[index];
        if (worker >= threads) worker_in_range = false;
      });
      for (uint64_t index = 0; index < count; ++index) EXPECT_EQ(runs[index].load(), 1) << index << " of " << count;
      EXPECT_TRUE(worker_in_range);
    }
  }
}

TEST(ThreadPool, ManySmallJobsSeeEachOthersWrites) {
  auto pool = ThreadPool::create(3);
  ASSERT_TRUE(pool.ok()) << pool.error().to_line();
  // Plain memory: the pool alone orders the jobs.
  std::vector<uint64_t> even(16, 0), odd(16, 0);
  for (int job = 0; job < 2000; ++job) {
    (*pool)->run(16, [&](uint64_t index, uint32_t) { odd[index] = even[(index + 5) % 16] + 1; });
    (*pool)->run(16, [&](uint64_t index, uint32_t) { even[index] = odd[(index + 3) % 16]; });
  }
  for (uint64_t value : even) EXPECT_EQ(value, 2000u);
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  auto pool = ThreadPool::create(1u << 20);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace chorus
