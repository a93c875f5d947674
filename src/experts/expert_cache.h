// Which experts are in host memory right now, under a budget of slots.
// Owns: the reads under way, leases, statistics. Must not know: files (expert_store), arithmetic, devices, which slots are whose memory.
//
// One thread acquires, releases and prefetches; the reading threads only report. A lease is the pin: while it lives its record stays where
// it is. A lease must not outlive the cache.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "experts/cache_policy.h"
#include "experts/expert_store.h"
#include "experts/reading_pool.h"

namespace chorus::experts {

struct CacheStatistics {
  uint64_t hits = 0;    // acquired and there
  uint64_t misses = 0;  // acquired and not there, or still being read
  uint64_t evictions = 0;
  uint64_t reads = 0;            // records read to the end
  uint64_t bytes_read = 0;       // from disk
  uint64_t prefetches = 0;       // reads begun on a guess
  uint64_t prefetches_used = 0;  // of them, acquired later
  double seconds_waited = 0;     // for reads
};

class ExpertCache;

class ExpertLease {
 public:
  ExpertLease() = default;
  ExpertLease(ExpertLease&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), key_(other.key_), slot_(other.slot_) {}
  ExpertLease& operator=(ExpertLease&& other) noexcept {
    ExpertLease(std::move(other)).swap(*this);
    return *this;
  }
  ~ExpertLease();

  ExpertKey key() const { return key_; }
  uint32_t slot() const { return slot_; }

 private:
  friend class ExpertCache;
  ExpertLease(ExpertCache* cache, ExpertKey key, uint32_t slot) : cache_(cache), key_(key), slot_(slot) {}
  void swap(ExpertLease& other) noexcept {
    std::swap(cache_, other.cache_);
    std::swap(key_, other.key_);
    std::swap(slot_, other.slot_);
  }

  ExpertCache* cache_ = nullptr;
  ExpertKey key_;
  uint32_t slot_ = 0;
};

// Memory for records, slot by slot. Best at multiples of 4096 with room for the record rounded up to 4096 (direct reads then need no copy).
struct SlotMemory {
  uint32_t slots = 0;
  std::function<std::span<std::byte>(uint32_t slot)> record;
};

class ExpertCache {
 public:
  using Clock = std::function<double()>;  // seconds

  // The store must outlive the cache, as must the slots' memory. Errors: invalid_argument (no slots), out_of_memory.
  static Result<std::unique_ptr<ExpertCache>> create(const ExpertStore& store, SlotMemory memory, uint32_t reading_threads,
                                                     Clock clock = steady_seconds);
  ~ExpertCache();

  // A lease on the expert's slot, whose record may still be on its way. Counts as a use. Nothing when every slot is leased: release first.
  // Waits when the only slots without a lease are those that guesses are being read into.
  Result<std::optional<ExpertLease>> acquire(ExpertKey key);
  // Until the record is there. An error of reading is returned, and the lease is over then.
  Status wait(ExpertLease& lease);
  bool ready(const ExpertLease& lease);
  // Until at least one is ready or has failed; at once when there is none.
  void wait_for_any(std::span<const ExpertLease> leases);

  // Reads experts that may be used soon, as far as a quarter of the slots allows. Errors of these reads are forgotten.
  void prefetch(std::span<const ExpertKey> keys);
  // Reads experts into free slots when there is nothing else to read.
  void warm(std::span<const ExpertKey> keys);
  // Prefetches that no thread has begun to read, and that are not among `keys`, are dropped.
  void drop_guesses_except(std::span<const ExpertKey> keys);

  bool holds(ExpertKey key);  // there, or on its way
  void begin_pass();
  void set_pinned(std::span<const ExpertKey> keys);
  uint32_t slots() const { return memory_.slots; }
  std::span<std::byte> record(const ExpertLease& lease) const { return memory_.record(lease.slot()); }
  CacheStatistics statistics() const;
  double worth(ExpertKey key) const;

  static double steady_seconds();

 private:
  friend class ExpertLease;
  enum class Phase : uint8_t { empty, wanted, guessed, warming, ready, failed };
  struct SlotState {
    Phase phase = Phase::empty;
    bool guessed_unused = false;  // read on a guess and not acquired since
    ExpertKey key;
    std::optional<Error> error;  // phase failed
  };

  ExpertCache(const ExpertStore& store, SlotMemory memory, Clock clock);
  // All with mutex_ held, except end_read, which takes it.
  using Lock = std::unique_lock<std::mutex>;
  std::optional<uint32_t> room_for(ExpertKey key, Lock& lock);
  bool cancel_a_guess();
  void note_found(uint32_t slot);
  bool guess(ExpertKey key, Phase phase);
  void begin_read(ExpertKey key, uint32_t slot, Phase phase, const CachePolicy::Room& room);
  bool under_way(uint32_t slot) const;
  void release_slot(uint32_t slot);
  void wait_timed(Lock& lock, const std::function<bool()>& done);

  void release(const ExpertLease& lease);
  void end_read(uint32_t slot, Status status);

  const ExpertStore& store_;
  SlotMemory memory_;
  Clock clock_;
  mutable std::mutex mutex_;
  std::condition_variable read_ended_;
  CachePolicy policy_;
  std::vector<SlotState> states_;
  CacheStatistics statistics_;
  std::unique_ptr<ReadingPool> pool_;  // last: its threads use the rest
};

}  // namespace chorus::experts
