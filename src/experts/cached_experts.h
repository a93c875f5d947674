// Experts under a budget: the executor over the caches. Results do not depend on what the caches hold: every route is computed once, by the
// same operation, whatever wave it falls into.
//
// Where the backend computes from host memory the bank's slots are the cache's slots, and experts are read in place. Elsewhere a bank in
// device memory has a cache policy of its own and is filled from the cache in host memory. One call: read the routes, which submits what
// was recorded; take leases; then waves of expert_ffn, first with what is there while the rest is being read. A wave has at most as many
// experts as the bank has slots; routes of other waves have kNoSlot.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "compute/backend.h"
#include "experts/cache_policy.h"
#include "experts/expert_cache.h"
#include "experts/expert_store.h"
#include "experts/expert_usage.h"
#include "experts/next_experts.h"
#include "experts/router_guess.h"
#include "models/blueprint.h"
#include "models/expert_executor.h"

namespace chorus::experts {

struct DeviceStatistics {
  uint64_t hits = 0, misses = 0, evictions = 0;
  uint64_t bytes_written = 0;  // to device memory
};

// Where the time of the executor's calls went, in seconds.
struct ExecutorTimes {
  double routes = 0;   // until the routes were known: the device's work before them, and reading them
  double reads = 0;    // waiting for experts
  double compute = 0;  // recording and, on the CPU, computing expert_ffn; uploads
};

class CachedExperts final : public models::ExpertExecutor {
 public:
  struct Options {
    uint32_t host_slots = 0;
    uint32_t device_slots = 0;  // not used where the backend computes from host memory
    bool prefetch = true;
    uint32_t reading_threads = 4;
    std::unique_ptr<RouterGuess> router_guess;  // null: guesses come from what was chosen together before
    LogSink log = {};
  };
  // Backend and store must outlive it. `usage`: what earlier runs used; its most used experts are pinned and, with prefetch, read ahead.
  static Result<std::unique_ptr<CachedExperts>> create(compute::Backend& backend, const models::Blueprint& blueprint,
                                                       const ExpertStore& store, Options options, const ExpertUsage& usage);
  ~CachedExperts() override;

  Status run(compute::Batch& batch, const models::ExpertCall& call) override;
  Status take_routers(std::span<const std::shared_ptr<compute::Weight>> routers) override {
    return router_guess_ ? router_guess_->take_routers(routers) : Status();
  }
  Status begin_pass(uint32_t rows) override;
  void end_pass() override;

  bool in_place() const { return in_place_; }
  CacheStatistics cache_statistics() const { return cache_->statistics(); }
  const DeviceStatistics& device_statistics() const { return device_statistics_; }
  const ExecutorTimes& times() const { return times_; }
  const ExpertUsage& usage() const { return usage_; }  // of this run

 private:
  class DeviceLeases;
  struct Placed {
    uint32_t expert = 0, slot = 0;
  };
  struct HostArena;

  CachedExperts(compute::Backend& backend, const models::Blueprint& blueprint, const ExpertStore& store, Options& options);
  Status make_room(const Options& options);
  void pin(const ExpertUsage& usage);

  Status read_routes(compute::Batch& batch, const models::ExpertCall& call);
  Status collect_wanted(const models::ExpertCall& call);
  void learn(const models::ExpertCall& call);
  void guess_next(const models::ExpertCall& call);
  Status acquire_more(size_t& next, std::vector<ExpertLease>& coming);
  Status run_in_place(compute::Batch& batch, const models::ExpertCall& call);
  Status take_ready(std::vector<ExpertLease>& coming, std::vector<ExpertLease>& ready);
  Status run_on_device(compute::Batch& batch, const models::ExpertCall& call);
  Status upload(std::vector<ExpertLease>& coming, size_t& next, DeviceLeases& wave);
  Status record_wave(compute::Batch& batch, const models::ExpertCall& call, std::span<const Placed> placed);

  compute::Backend& backend_;
  std::vector<compute::ExpertActivation> activations_;  // by layer
  const ExpertStore& store_;
  bool prefetch_ = true;
  bool in_place_ = false;
  LogSink log_;
  bool said_buffered_ = false;
  std::shared_ptr<compute::ExpertBank> bank_;
  std::unique_ptr<HostArena> arena_;  // records in host memory, where the bank is not there
  std::unique_ptr<ExpertCache> cache_;
  std::unique_ptr<CachePolicy> device_;  // null in place
  DeviceStatistics device_statistics_;
  ExecutorTimes times_;
  ExpertUsage usage_;
  NextExperts next_;
  std::unique_ptr<RouterGuess> router_guess_;
  GuessJudge judge_;
  bool guesses_pay_ = true;         // as judged when the call before had taken what it wanted
  std::vector<ExpertKey> guesses_;  // of the router, for the layer after this call's

  std::shared_ptr<compute::Buffer> slots_buffer_;
  std::vector<uint32_t> routes_, slots_, slot_of_;  // of the call at hand
  std::vector<ExpertKey> wanted_;                   // its experts, each once
  std::vector<uint32_t> routes_before_;             // of the layer before
  uint32_t layer_before_ = 0;
  bool guessed_ = false;              // for the layer after this call's
  std::vector<ExpertLease> pending_;  // of a wave that may not have been submitted
  std::unique_ptr<DeviceLeases> pending_device_;
};

}  // namespace chorus::experts
