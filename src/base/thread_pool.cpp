#include "base/thread_pool.h"

#include <algorithm>
#include <string>
#include <system_error>

namespace chorus {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr int kSpins = 256;  // a few microseconds: the next small operation often follows at once

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` differs from `old` and returns what it became.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_briefly();
  }
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(uint32_t threads) {
  if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax);
  if (threads > kThreadsMax) {
    return make_error(ErrorCode::invalid_argument,
                      "threads: expected at most " + std::to_string(kThreadsMax) + ", found " + std::to_string(threads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  try {
    pool->workers_.reserve(threads - 1);
    for (uint32_t worker = 1; worker < threads; ++worker)
      pool->workers_.emplace_back([raw = pool.get(), worker] { raw->worker_loop(worker); });
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::out_of_memory, "threads: expected to start " + std::to_string(threads - 1) + ", started " +
                                                    std::to_string(pool->workers_.size()) + " (" + error.what() + ")");
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work(const Job& job, uint32_t worker) {
  for (uint64_t index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < job.count;) job.call(job.context, index, worker);
}

void ThreadPool::run_job(const Job& job) {
  if (workers_.empty() || job.count <= 1) {
    for (uint64_t index = 0; index < job.count; ++index) job.call(job.context, index, 0);
    return;
  }
  job_ = job;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(job, 0);
  for (uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;) busy = wait_for_change(busy_, busy);
}

void ThreadPool::worker_loop(uint32_t worker) {
  for (uint32_t seen = 0;;) {
    seen = wait_for_change(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    work(job_, worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace chorus
