// Which of equal scores the reference takes. It calls torch.topk on the processor, which has no rule of its own for equal values: it runs
// the standard library's partial sort when there are at least 64 entries to one taken, else its nth_element, both as libstdc++ implements
// them, and takes what ends up in front. So the same steps are made here, in our own words: heap select, and quickselect that splits at the
// median of three (Musser 1997, introselect). The outcome depends on the order of all entries of the list and on its length.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>

namespace chorus::kernels {

// Entries of a list by falling score; scores are numbers that order as the real ones. Entries past the end of `scores` come last, all
// equal.
class TieOrder {
 public:
  // list: 0, 1, 2 ... is written to it. Afterwards its first `top` entries are those taken. 1 <= top <= list.size().
  TieOrder(std::span<const uint32_t> scores, std::span<uint32_t> list, uint64_t top) : scores_(scores), list_(list) {
    for (uint64_t i = 0; i < list.size(); ++i) list_[i] = static_cast<uint32_t>(i);
    if (top * 64 <= list.size()) {
      heap_select(0, top, list.size());
    } else {
      quick_select(top - 1);
    }
  }

 private:
  bool before(uint32_t a, uint32_t b) const { return score(a) > score(b); }
  uint64_t score(uint32_t entry) const { return entry < scores_.size() ? uint64_t{scores_[entry]} + 1 : 0; }
  void swap(uint64_t a, uint64_t b) { std::swap(list_[a], list_[b]); }

  void quick_select(uint64_t nth) {
    uint64_t first = 0, last = list_.size();
    for (int depth = 2 * (std::bit_width(last) - 1); last - first > 3; --depth) {
      if (depth == 0) {
        heap_select(first, nth + 1, last);
        swap(first, nth);
        return;
      }
      const uint64_t cut = split(first, last);
      (cut <= nth ? first : last) = cut;
    }
    insertion_sort(first, last);
  }

  // Puts the median of three entries first and splits the others by it; returns where the second part begins.
  uint64_t split(uint64_t first, uint64_t last) {
    swap(first, median(first + 1, first + (last - first) / 2, last - 1));
    const uint32_t pivot = list_[first];
    uint64_t low = first + 1, high = last;
    while (true) {
      while (before(list_[low], pivot)) ++low;
      --high;
      while (before(pivot, list_[high])) --high;
      if (low >= high) return low;
      swap(low, high);
      ++low;
    }
  }

  uint64_t median(uint64_t a, uint64_t b, uint64_t c) const {
    if (before(list_[a], list_[b])) {
      if (before(list_[b], list_[c])) return b;
      return before(list_[a], list_[c]) ? c : a;
    }
    if (before(list_[a], list_[c])) return a;
    return before(list_[b], list_[c]) ? c : b;
  }

  void insertion_sort(uint64_t first, uint64_t last) {
    for (uint64_t i = first + 1; i < last; ++i) {
      for (uint64_t k = i; k > first && before(list_[k], list_[k - 1]); --k) swap(k, k - 1);
    }
  }

  // [first, middle) becomes a heap with the last of the taken on top, which better entries behind replace.
  void heap_select(uint64_t first, uint64_t middle, uint64_t last) {
    const uint64_t size = middle - first;
    for (uint64_t parent = size / 2; parent-- > 0;) sift(first, parent, size, list_[first + parent]);
    for (uint64_t i = middle; i < last; ++i) {
      if (!before(list_[i], list_[first])) continue;
      const uint32_t entry = list_[i];
      list_[i] = list_[first];
      sift(first, 0, size, entry);
    }
  }

  // Moves the hole at `hole` down to a leaf, always towards the later child (of equals the right one), then `entry` up from there.
  void sift(uint64_t first, uint64_t hole, uint64_t size, uint32_t entry) {
    const uint64_t top = hole;
    while (2 * hole + 2 < size) {
      uint64_t child = 2 * hole + 2;
      if (before(list_[first + child], list_[first + child - 1])) --child;
      list_[first + hole] = list_[first + child];
      hole = child;
    }
    if (2 * hole + 2 == size) {
      list_[first + hole] = list_[first + 2 * hole + 1];
      hole = 2 * hole + 1;
    }
    while (hole > top && before(list_[first + (hole - 1) / 2], entry)) {
      list_[first + hole] = list_[first + (hole - 1) / 2];
      hole = (hole - 1) / 2;
    }
    list_[first + hole] = entry;
  }

  std::span<const uint32_t> scores_;
  std::span<uint32_t> list_;
};

}  // namespace chorus::kernels
