#include "gpu/bind_groups.h"

#include <algorithm>
#include <utility>

namespace chorus::gpu {

uint64_t BindGroupCache::hash(Key key) {
  uint64_t state = 0x9e3779b97f4a7c15ull;
  for (const uint64_t word : key) {
    state = (state ^ word) * 0xff51afd7ed558ccdull;
    state ^= state >> 32;
  }
  return state;
}

const wgpu::BindGroup* BindGroupCache::find(uint64_t hash, Key key) const {
  const auto found = entries_.find(hash);
  if (found == entries_.end() || !std::ranges::equal(std::span(found->second.key).first(found->second.words), key)) return nullptr;
  return &found->second.group;
}

const wgpu::BindGroup& BindGroupCache::insert(uint64_t hash, Key key, wgpu::BindGroup group) {
  if (++insertions_ > kInsertionsMax) clear();
  Entry& entry = entries_[hash];                                  // two keys of one hash: the newer one stays
  entry.words = key.size() <= entry.key.size() ? key.size() : 0;  // a longer key is never found again
  std::ranges::copy(key.first(entry.words), entry.key.begin());
  entry.group = std::move(group);
  return entry.group;
}

void BindGroupCache::note(Users& users, uint64_t hash) const {
  if (users.generation != generation_) {
    users.generation = generation_;
    users.hashes.clear();
  }
  users.hashes.push_back(hash);
}

void BindGroupCache::forget(Users& users) {
  if (users.generation == generation_) {
    for (const uint64_t hash : users.hashes) entries_.erase(hash);
  }
  users.hashes.clear();
}

void BindGroupCache::clear() {
  entries_.clear();
  ++generation_;
  insertions_ = 0;
}

}  // namespace chorus::gpu
