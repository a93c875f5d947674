// Which experts stay. Pure: no clock, no files, no memory, one thread.
// Owns: what each slot holds, leases on slots, the worth of every expert, the choice of a victim.
//
// The worth of an expert is the number of its uses, each halved for every `half_life` passes since then (LRFU, Lee et al. 2001: between the
// least recently and the least frequently used). As all worths shrink alike, their logarithm relative to pass 0 changes only with a use,
// and the order of unused slots stays valid in a heap. A use, lease or new content makes the slot's older heap entries stale; they are
// dropped when met. Of equals the one used last goes first: a pass visits the layers in a circle, so what was used last is needed again
// last. Pinned experts go only when nothing else can.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "experts/expert_store.h"

namespace chorus::experts {

class CachePolicy {
 public:
  static constexpr double kHalfLifePasses = 64;

  // experts_per_layer: 0 for dense layers.
  CachePolicy(uint32_t slots, std::span<const uint32_t> experts_per_layer, double half_life_passes = kHalfLifePasses);

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  bool knows(ExpertKey key) const;
  std::optional<uint32_t> find(ExpertKey key) const;

  void begin_pass() { time_ += 1 / half_life_; }
  void note_use(ExpertKey key);
  void set_pinned(std::span<const ExpertKey> keys);

  struct Room {
    uint32_t slot = 0;
    std::optional<ExpertKey> evicted;
  };
  // A slot for `key`, which has none, with one lease on it. Nothing when every slot is leased, or, for a guess, when only pinned experts
  // could go.
  enum class Purpose { use, guess };
  std::optional<Room> make_room(ExpertKey key, Purpose purpose);
  void lease(uint32_t slot);
  void release(uint32_t slot);
  uint32_t leases(uint32_t slot) const { return slots_[slot].leases; }
  // Empties a slot, whose only lease ends with this.
  void forget(uint32_t slot);
  bool has_free_slot() const { return !free_.empty(); }

  uint32_t leased_slots() const { return leased_; }
  uint64_t stale_entries() const { return stale_; }
  // Uses of an expert, aged to now.
  double worth(ExpertKey key) const;

 private:
  struct Expert {
    double worth_log = kNever;  // log2 of the aged uses, as seen from pass 0
    uint64_t last_use = 0;
    uint32_t slot = kNone;
    bool pinned = false;
  };
  struct Slot {
    std::optional<ExpertKey> key;
    uint32_t leases = 0;
    uint64_t version = 0;
  };
  struct Entry {
    bool pinned = false;
    double worth_log = 0;
    uint64_t last_use = 0;
    uint32_t slot = 0;
    uint64_t version = 0;
  };
  struct GoesLater {
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.pinned != b.pinned) return a.pinned;
      if (a.worth_log != b.worth_log) return a.worth_log > b.worth_log;
      if (a.last_use != b.last_use) return a.last_use < b.last_use;
      return a.slot > b.slot;
    }
  };
  static constexpr double kNever = -1e300;
  static constexpr uint32_t kNone = UINT32_MAX;

  Expert& expert(ExpertKey key) { return experts_[first_[key.layer] + key.expert]; }
  const Expert& expert(ExpertKey key) const { return experts_[first_[key.layer] + key.expert]; }
  void offer(uint32_t slot);
  std::optional<uint32_t> take_victim(Purpose purpose);

  double half_life_;
  double time_ = 0;  // half lives since the start
  uint64_t uses_ = 0;
  std::vector<size_t> first_;  // of each layer, in experts_; one more at the end
  std::vector<Expert> experts_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::priority_queue<Entry, std::vector<Entry>, GoesLater> heap_;
  uint32_t leased_ = 0;
  uint64_t stale_ = 0;
};

}  // namespace chorus::experts
