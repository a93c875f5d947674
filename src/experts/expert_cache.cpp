#include "experts/expert_cache.h"

#include <algorithm>
#include <chrono>
#include <new>

namespace chorus::experts {
namespace {

constexpr uint32_t kGuessShare = 4;  // one slot in so many may be on its way on a guess

std::vector<uint32_t> experts_per_layer(const ExpertStore& store) {
  std::vector<uint32_t> counts;
  for (uint32_t layer = 0; layer < store.layers(); ++layer) counts.push_back(store.experts(layer));
  return counts;
}

}  // namespace

ExpertLease::~ExpertLease() {
  if (cache_ != nullptr) cache_->release(*this);
}

double ExpertCache::steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

ExpertCache::ExpertCache(const ExpertStore& store, SlotMemory memory, Clock clock)
    : store_(store),
      memory_(std::move(memory)),
      clock_(std::move(clock)),
      policy_(memory_.slots, experts_per_layer(store)),
      states_(memory_.slots) {}

Result<std::unique_ptr<ExpertCache>> ExpertCache::create(const ExpertStore& store, SlotMemory memory, uint32_t reading_threads,
                                                         Clock clock) {
  if (memory.slots == 0) return make_error(ErrorCode::invalid_argument, "expert cache: expected room for at least one expert, found none");
  try {
    std::unique_ptr<ExpertCache> cache(new ExpertCache(store, std::move(memory), std::move(clock)));
    CHORUS_ASSIGN(cache->pool_, ReadingPool::create(store, reading_threads));
    return cache;
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, "expert cache: no memory for its bookkeeping");
  }
}

ExpertCache::~ExpertCache() { pool_.reset(); }

bool ExpertCache::under_way(uint32_t slot) const {
  const Phase phase = states_[slot].phase;
  return phase == Phase::wanted || phase == Phase::guessed || phase == Phase::warming;
}

void ExpertCache::wait_timed(Lock& lock, const std::function<bool()>& done) {
  if (done()) return;
  const double begin = clock_();
  read_ended_.wait(lock, done);
  statistics_.seconds_waited += clock_() - begin;
}

// Frees the slot of a guess that no thread has begun to read.
bool ExpertCache::cancel_a_guess() {
  for (uint32_t slot = 0; slot < memory_.slots; ++slot) {
    SlotState& state = states_[slot];
    if ((state.phase != Phase::guessed && state.phase != Phase::warming) || policy_.leases(slot) != 1) continue;
    if (!pool_->cancel(state.key)) continue;
    if (state.phase == Phase::guessed) --statistics_.prefetches;
    policy_.forget(slot);
    state = {};
    return true;
  }
  return false;
}

void ExpertCache::begin_read(ExpertKey key, uint32_t slot, Phase phase, const CachePolicy::Room& room) {
  if (room.evicted) ++statistics_.evictions;
  states_[slot] = {phase, phase == Phase::guessed, key, std::nullopt};
  const auto urgency = phase == Phase::wanted    ? ReadingPool::Urgency::wanted_now
                       : phase == Phase::guessed ? ReadingPool::Urgency::wanted_soon
                                                 : ReadingPool::Urgency::some_day;
  pool_->start(key, memory_.record(slot), urgency, [this, slot](Status status) { end_read(slot, std::move(status)); });
}

// Of a read, on its thread. The read's own lease ends here.
void ExpertCache::end_read(uint32_t slot, Status status) {
  {
    const std::scoped_lock lock(mutex_);
    SlotState& state = states_[slot];
    if (status.ok()) {
      state.phase = Phase::ready;
      ++statistics_.reads;
      statistics_.bytes_read += store_.stored_bytes();
    } else {
      state.phase = Phase::failed;
      state.error = std::move(status).error();
    }
    release_slot(slot);
  }
  read_ended_.notify_all();
}

void ExpertCache::release_slot(uint32_t slot) {
  if (states_[slot].phase == Phase::failed && policy_.leases(slot) == 1) {
    policy_.forget(slot);
    states_[slot] = {};
  } else {
    policy_.release(slot);
  }
}

// A slot that holds `key`, with the caller's lease on it.
std::optional<uint32_t> ExpertCache::room_for(ExpertKey key, Lock& lock) {
  for (;;) {
    if (const auto room = policy_.make_room(key, CachePolicy::Purpose::use)) {
      ++statistics_.misses;
      policy_.lease(room->slot);  // make_room's lease is the read's
      begin_read(key, room->slot, Phase::wanted, *room);
      return room->slot;
    }
    if (cancel_a_guess()) continue;
    const auto only_read = [&](uint32_t slot) { return under_way(slot) && policy_.leases(slot) == 1; };
    const auto count = [&] {
      uint32_t found = 0;
      for (uint32_t slot = 0; slot < memory_.slots; ++slot) found += only_read(slot);
      return found;
    };
    const uint32_t before = count();
    if (before == 0) return std::nullopt;
    wait_timed(lock, [&] { return count() < before; });
  }
}

void ExpertCache::note_found(uint32_t slot) {
  SlotState& state = states_[slot];
  policy_.lease(slot);
  if (state.guessed_unused) ++statistics_.prefetches_used;
  state.guessed_unused = false;
  if (under_way(slot)) {
    ++statistics_.misses;
    pool_->hurry(state.key);
  } else {
    ++statistics_.hits;
  }
}

Result<std::optional<ExpertLease>> ExpertCache::acquire(ExpertKey key) {
  Lock lock(mutex_);
  if (!policy_.knows(key)) {
    return make_error(ErrorCode::invalid_argument, "expert cache: " + place_text(key) + ": the model has no such expert");
  }
  policy_.note_use(key);
  auto slot = policy_.find(key);
  if (slot) {
    note_found(*slot);
  } else {
    slot = room_for(key, lock);
    if (!slot) return std::optional<ExpertLease>();
  }
  return std::optional<ExpertLease>(ExpertLease(this, key, *slot));
}

Status ExpertCache::wait(ExpertLease& lease) {
  CHORUS_CHECK(lease.cache_ == this);
  Lock lock(mutex_);
  wait_timed(lock, [&] { return !under_way(lease.slot_); });
  if (states_[lease.slot_].phase == Phase::ready) return {};
  Error error = *states_[lease.slot_].error;
  release_slot(lease.slot_);
  lease.cache_ = nullptr;
  return error;
}

bool ExpertCache::ready(const ExpertLease& lease) {
  const std::scoped_lock lock(mutex_);
  return !under_way(lease.slot_);
}

void ExpertCache::wait_for_any(std::span<const ExpertLease> leases) {
  if (leases.empty()) return;
  Lock lock(mutex_);
  wait_timed(lock, [&] { return std::any_of(leases.begin(), leases.end(), [&](const auto& lease) { return !under_way(lease.slot_); }); });
}

void ExpertCache::release(const ExpertLease& lease) {
  const std::scoped_lock lock(mutex_);
  release_slot(lease.slot_);
}

bool ExpertCache::guess(ExpertKey key, Phase phase) {
  if (!policy_.knows(key) || policy_.find(key)) return true;
  if (phase == Phase::warming && !policy_.has_free_slot()) return false;
  const auto room = policy_.make_room(key, CachePolicy::Purpose::guess);
  if (!room) return false;
  if (phase == Phase::guessed) ++statistics_.prefetches;
  begin_read(key, room->slot, phase, *room);
  return true;
}

void ExpertCache::prefetch(std::span<const ExpertKey> keys) {
  const std::scoped_lock lock(mutex_);
  auto under = static_cast<uint32_t>(
      std::count_if(states_.begin(), states_.end(), [](const SlotState& state) { return state.phase == Phase::guessed; }));
  for (const ExpertKey key : keys) {
    if (under >= memory_.slots / kGuessShare) return;
    if (policy_.knows(key) && policy_.find(key)) continue;
    if (!guess(key, Phase::guessed)) return;
    ++under;
  }
}

void ExpertCache::warm(std::span<const ExpertKey> keys) {
  const std::scoped_lock lock(mutex_);
  for (const ExpertKey key : keys) {
    if (!guess(key, Phase::warming)) return;
  }
}

void ExpertCache::drop_guesses_except(std::span<const ExpertKey> keys) {
  const std::scoped_lock lock(mutex_);
  for (uint32_t slot = 0; slot < memory_.slots; ++slot) {
    SlotState& state = states_[slot];
    if (state.phase != Phase::guessed || policy_.leases(slot) != 1) continue;
    if (std::find(keys.begin(), keys.end(), state.key) != keys.end() || !pool_->cancel(state.key)) continue;
    --statistics_.prefetches;
    policy_.forget(slot);
    state = {};
  }
}

bool ExpertCache::holds(ExpertKey key) {
  const std::scoped_lock lock(mutex_);
  return policy_.knows(key) && policy_.find(key).has_value();
}

void ExpertCache::begin_pass() {
  const std::scoped_lock lock(mutex_);
  policy_.begin_pass();
}

void ExpertCache::set_pinned(std::span<const ExpertKey> keys) {
  const std::scoped_lock lock(mutex_);
  policy_.set_pinned(keys);
}

CacheStatistics ExpertCache::statistics() const {
  const std::scoped_lock lock(mutex_);
  return statistics_;
}

double ExpertCache::worth(ExpertKey key) const {
  const std::scoped_lock lock(mutex_);
  return policy_.worth(key);
}

}  // namespace chorus::experts
