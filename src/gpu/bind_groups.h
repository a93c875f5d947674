// Bind groups kept between submits, keyed by layout and by the storages they name, so that the same model step encodes cheaply.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace chorus::gpu {

class BindGroupCache {
 public:
  // The entries that name one storage; kept by the storage and given back when it dies (its id is never reused).
  struct Users {
    uint64_t generation = 0;
    std::vector<uint64_t> hashes;
  };

  // Words that identify a bind group: layout, parameter buffer, then (id, offset, size) of each storage.
  using Key = std::span<const uint64_t>;
  static constexpr size_t kStoragesMax = 10;

  static uint64_t hash(Key key);
  const wgpu::BindGroup* find(uint64_t hash, Key key) const;
  const wgpu::BindGroup& insert(uint64_t hash, Key key, wgpu::BindGroup group);
  // Notes in `users` that entry `hash` names its storage.
  void note(Users& users, uint64_t hash) const;
  void forget(Users& users);
  void clear();
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::array<uint64_t, 2 + 3 * kStoragesMax> key;  // in place: a lookup waits for memory
    size_t words = 0;
    wgpu::BindGroup group;
  };
  // Bounds the entries and, through the generation, the lists of hashes in long-lived storages.
  static constexpr uint32_t kInsertionsMax = 16384;

  std::unordered_map<uint64_t, Entry> entries_;
  uint64_t generation_ = 1;
  uint32_t insertions_ = 0;
};

}  // namespace chorus::gpu
