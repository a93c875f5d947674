#include "experts/cache_policy.h"

#include <cmath>

namespace chorus::experts {

CachePolicy::CachePolicy(uint32_t slots, std::span<const uint32_t> experts_per_layer, double half_life_passes)
    : half_life_(half_life_passes), slots_(slots) {
  size_t count = 0;
  for (const uint32_t experts : experts_per_layer) {
    first_.push_back(count);
    count += experts;
  }
  first_.push_back(count);
  experts_.resize(count);
  for (uint32_t slot = slots; slot > 0; --slot) free_.push_back(slot - 1);
}

bool CachePolicy::knows(ExpertKey key) const {
  return key.layer + size_t{1} < first_.size() && key.expert < first_[key.layer + 1] - first_[key.layer];
}

std::optional<uint32_t> CachePolicy::find(ExpertKey key) const {
  const uint32_t slot = expert(key).slot;
  if (slot == kNone) return std::nullopt;
  return slot;
}

void CachePolicy::note_use(ExpertKey key) {
  Expert& used = expert(key);
  // log2(2^worth + 2^time): the newer term is the larger one or nearly so, and an expert never used adds nothing.
  const double high = std::max(used.worth_log, time_), low = std::min(used.worth_log, time_);
  used.worth_log = high + std::log2(1 + std::exp2(low - high));
  used.last_use = ++uses_;
  if (used.slot != kNone && slots_[used.slot].leases == 0) offer(used.slot);
}

void CachePolicy::set_pinned(std::span<const ExpertKey> keys) {
  for (Expert& each : experts_) each.pinned = false;
  for (const ExpertKey key : keys) expert(key).pinned = true;
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    if (slots_[slot].key && slots_[slot].leases == 0) offer(slot);
  }
}

void CachePolicy::offer(uint32_t slot) {
  Slot& offered = slots_[slot];
  const Expert& held = expert(*offered.key);
  heap_.push({held.pinned, held.worth_log, held.last_use, slot, ++offered.version});
}

std::optional<uint32_t> CachePolicy::take_victim(Purpose purpose) {
  while (!heap_.empty()) {
    const Entry entry = heap_.top();
    if (entry.version == slots_[entry.slot].version) {
      if (entry.pinned && purpose == Purpose::guess) return std::nullopt;
      heap_.pop();
      return entry.slot;
    }
    heap_.pop();
    ++stale_;
  }
  return std::nullopt;
}

std::optional<CachePolicy::Room> CachePolicy::make_room(ExpertKey key, Purpose purpose) {
  Room room;
  if (!free_.empty()) {
    room.slot = free_.back();
    free_.pop_back();
  } else {
    const auto victim = take_victim(purpose);
    if (!victim) return std::nullopt;
    room.slot = *victim;
    room.evicted = slots_[room.slot].key;
    expert(*room.evicted).slot = kNone;
  }
  Slot& slot = slots_[room.slot];
  slot.key = key;
  slot.leases = 1;
  ++slot.version;
  ++leased_;
  expert(key).slot = room.slot;
  return room;
}

void CachePolicy::lease(uint32_t slot) {
  Slot& leased = slots_[slot];
  if (leased.leases++ > 0) return;
  ++leased.version;
  ++leased_;
}

void CachePolicy::release(uint32_t slot) {
  Slot& released = slots_[slot];
  if (--released.leases > 0) return;
  --leased_;
  offer(slot);
}

void CachePolicy::forget(uint32_t slot) {
  Slot& emptied = slots_[slot];
  expert(*emptied.key).slot = kNone;
  emptied.key.reset();
  emptied.leases = 0;
  ++emptied.version;
  --leased_;
  free_.push_back(slot);
}

double CachePolicy::worth(ExpertKey key) const { return std::exp2(expert(key).worth_log - time_); }

}  // namespace chorus::experts
