// Byte-pair merging of one piece of text: again and again the adjacent pair of lowest rank, the leftmost among equals, becomes one token.
// A long piece costs n log n: a heap of ranks over a linked list of tokens. A short one is merged in place, without allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chorus::formats {

class BytePairMerges {
 public:
  void reserve(size_t merge_count);
  void set_byte(uint8_t byte, uint32_t id) { byte_ids_[byte] = id; }
  // Pair (left, right) becomes `merged`; lower ranks go first. A pair given again replaces the earlier one, as in the reference.
  void set_merge(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);

  // Appends the ids of the piece. At most 2^32 - 2 bytes.
  void append_ids(std::string_view piece, std::vector<uint32_t>& ids) const;

 private:
  struct Merge {
    uint64_t pair = kFree;
    uint32_t rank = kNoRank;
    uint32_t merged = 0;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  size_t slot_of(uint64_t pair) const;
  Merge find(uint32_t left, uint32_t right) const;
  void append_short(std::string_view piece, std::vector<uint32_t>& ids) const;
  void append_long(std::string_view piece, std::vector<uint32_t>& ids) const;

  std::array<uint32_t, 256> byte_ids_{};
  std::vector<Merge> table_;  // open addressing, a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace chorus::formats
