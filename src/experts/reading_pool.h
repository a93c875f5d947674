// Threads that read experts, those that a computation waits for before those that it may want soon.
// Owns: the threads and the queues. Must not know: slots, leases, budgets.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"
#include "experts/expert_store.h"

namespace chorus::experts {

class ReadingPool {
 public:
  enum class Urgency { wanted_now, wanted_soon, some_day };
  using Done = std::function<void(Status)>;  // called once, on a reading thread, unless the read is cancelled

  // The store must outlive the pool. Errors: out_of_memory (the system gives no thread).
  static Result<std::unique_ptr<ReadingPool>> create(const ExpertStore& store, uint32_t threads);
  // Waits for the parts that are being read; other reads end without a call of their Done.
  ~ReadingPool();
  ReadingPool(const ReadingPool&) = delete;
  ReadingPool& operator=(const ReadingPool&) = delete;

  // `record` stays valid until Done was called or the read was cancelled. At most one read of a key at a time.
  void start(ExpertKey key, std::span<std::byte> record, Urgency urgency, Done done);
  // A read that was less urgent is wanted now. Nothing happens when it has ended.
  void hurry(ExpertKey key);
  // True when the read had not begun and is gone.
  bool cancel(ExpertKey key);

 private:
  struct Read {
    ExpertKey key;
    std::span<std::byte> record;
    Done done;
    uint32_t next_part = 0;   // first that no thread has taken
    uint32_t parts_open = 0;  // taken or not, and not ended
    Status status;            // first error
  };
  using Queue = std::deque<std::shared_ptr<Read>>;

  explicit ReadingPool(const ExpertStore& store) : store_(store) {}
  void work();
  std::optional<uint32_t> take_part(std::shared_ptr<Read>& read);
  bool end_part(Read& read, Status status);

  const ExpertStore& store_;
  std::mutex mutex_;
  std::condition_variable something_to_do_;
  std::array<Queue, 3> queues_;  // by urgency: reads with parts that no thread has taken
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace chorus::experts
