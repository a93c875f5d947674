// A fixed set of threads that carries out numbered tasks together with the caller.
// Owns: the threads. Must not know: what a task does. The tasks of a job are fixed by its caller (never by the number of threads), each is
// carried out exactly once by one thread, so results cannot depend on how many threads there are or which one takes a task.
// One thread at a time calls run(); tasks must not call run() and must not throw.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"

namespace chorus {

class ThreadPool {
 public:
  // threads counts the caller: 1 makes a pool without threads of its own; 0 asks for one per processor.
  static Result<std::unique_ptr<ThreadPool>> create(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls task(index, worker) for every index in [0, count); worker < threads() names the thread's own scratch. Returns when all are done.
  template <typename Task>
  void run(uint64_t count, const Task& task) {
    const Job job{[](const void* context, uint64_t index, uint32_t worker) { (*static_cast<const Task*>(context))(index, worker); }, &task,
                  count};
    run_job(job);
  }

 private:
  struct Job {
    void (*call)(const void* context, uint64_t index, uint32_t worker) = nullptr;
    const void* context = nullptr;
    uint64_t count = 0;
  };

  ThreadPool() = default;
  void run_job(const Job& job);
  void work(const Job& job, uint32_t worker);
  void worker_loop(uint32_t worker);

  std::vector<std::thread> workers_;
  Job job_;                              // written before generation_ moves, read after
  std::atomic<uint64_t> next_{0};        // next task of the job
  std::atomic<uint32_t> generation_{0};  // moves when a job (or the end) is posted
  std::atomic<uint32_t> busy_{0};        // workers that have not finished the job
  std::atomic<bool> stop_{false};
};

}  // namespace chorus
