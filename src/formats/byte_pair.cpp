#include "formats/byte_pair.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <utility>

namespace chorus::formats {
namespace {

constexpr size_t kShortPiece = 48;  // bytes; longer pieces take the heap
constexpr uint32_t kNone = ~uint32_t{0};

uint64_t pair_key(uint32_t left, uint32_t right) { return (static_cast<uint64_t>(left) << 32) | right; }

// Spreads neighbouring ids over the table; two rounds of multiply and fold.
uint64_t mixed(uint64_t key) {
  key = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ull;
  key = (key ^ (key >> 29)) * 0xD6E8FEB86659FD93ull;
  return key ^ (key >> 32);
}

}  // namespace

void BytePairMerges::reserve(size_t merge_count) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, merge_count * 2));
  if (size <= table_.size()) return;
  const std::vector<Merge> old = std::exchange(table_, std::vector<Merge>(size));
  for (const Merge& merge : old) {
    if (merge.pair != kFree) table_[slot_of(merge.pair)] = merge;
  }
}

size_t BytePairMerges::slot_of(uint64_t pair) const {
  const size_t mask = table_.size() - 1;
  size_t slot = mixed(pair) & mask;
  while (table_[slot].pair != pair && table_[slot].pair != kFree) slot = (slot + 1) & mask;
  return slot;
}

void BytePairMerges::set_merge(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
  reserve(count_ + 1);
  Merge& slot = table_[slot_of(pair_key(left, right))];
  if (slot.pair == kFree) ++count_;
  slot = {pair_key(left, right), rank, merged};
}

BytePairMerges::Merge BytePairMerges::find(uint32_t left, uint32_t right) const {
  if (table_.empty()) return {};
  return table_[slot_of(pair_key(left, right))];
}

void BytePairMerges::append_ids(std::string_view piece, std::vector<uint32_t>& ids) const {
  if (piece.size() <= kShortPiece) {
    append_short(piece, ids);
  } else {
    append_long(piece, ids);
  }
}

void BytePairMerges::append_short(std::string_view piece, std::vector<uint32_t>& ids) const {
  uint32_t tokens[kShortPiece];
  Merge merges[kShortPiece];  // merges[i]: of tokens i and i + 1
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) tokens[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    tokens[best] = merges[best].merged;
    --count;
    for (size_t i = best + 1; i < count; ++i) tokens[i] = tokens[i + 1];
    for (size_t i = best; i + 1 < count; ++i) merges[i] = merges[i + 1];
    if (best > 0) merges[best - 1] = find(tokens[best - 1], tokens[best]);
    if (best + 1 < count) merges[best] = find(tokens[best], tokens[best + 1]);
  }
  ids.insert(ids.end(), tokens, tokens + count);
}

void BytePairMerges::append_long(std::string_view piece, std::vector<uint32_t>& ids) const {
  struct Link {
    uint32_t token;  // kNone once merged into its left neighbour
    uint32_t previous;
    uint32_t next;
  };
  const auto count = static_cast<uint32_t>(piece.size());
  std::vector<Link> links(count);
  for (uint32_t i = 0; i < count; ++i) {
    links[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  }
  // Rank in the high half, place in the low half: the smallest key is the lowest rank, leftmost. An entry is stale when its pair has
  // changed since; the rank then no longer fits and it is dropped.
  const auto merge_at = [&](uint32_t at) { return links[at].next == kNone ? Merge{} : find(links[at].token, links[links[at].next].token); };
  std::vector<uint64_t> keys;
  keys.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (const Merge merge = merge_at(i); merge.rank != kNoRank) keys.push_back(pair_key(merge.rank, i));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(), std::move(keys));
  const auto push = [&](uint32_t at) {
    if (const Merge merge = merge_at(at); merge.rank != kNoRank) heap.push(pair_key(merge.rank, at));
  };
  while (!heap.empty()) {
    const uint64_t key = heap.top();
    heap.pop();
    const auto at = static_cast<uint32_t>(key);
    Link& left = links[at];
    if (left.token == kNone) continue;
    const Merge merge = merge_at(at);
    if (merge.rank != static_cast<uint32_t>(key >> 32)) continue;
    Link& right = links[left.next];
    left.token = merge.merged;
    left.next = right.next;
    right.token = kNone;
    if (left.next != kNone) links[left.next].previous = at;
    if (left.previous != kNone) push(left.previous);
    push(at);
  }
  for (uint32_t at = 0; at != kNone; at = links[at].next) ids.push_back(links[at].token);
}

}  // namespace chorus::formats
