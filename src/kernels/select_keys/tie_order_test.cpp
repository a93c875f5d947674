#include "kernels/select_keys/tie_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace chorus::kernels {
namespace {

// What the reference does, with the library it does it with.
std::vector<uint32_t> taken_by_library(const std::vector<uint32_t>& scores, uint64_t length, uint64_t top) {
  std::vector<uint32_t> list(length);
  std::iota(list.begin(), list.end(), 0u);
  const auto score = [&](uint32_t entry) { return entry < scores.size() ? int64_t{scores[entry]} : int64_t{-1}; };
  const auto before = [&](uint32_t a, uint32_t b) { return score(a) > score(b); };
  if (top * 64 <= length) {
    std::partial_sort(list.begin(), list.begin() + static_cast<ptrdiff_t>(top), list.end(), before);
  } else {
    std::nth_element(list.begin(), list.begin() + static_cast<ptrdiff_t>(top - 1), list.end(), before);
  }
  list.resize(top);
  std::sort(list.begin(), list.end());
  return list;
}

std::vector<uint32_t> taken(const std::vector<uint32_t>& scores, uint64_t length, uint64_t top) {
  std::vector<uint32_t> list(length);
  TieOrder(scores, list, top);
  list.resize(top);
  std::sort(list.begin(), list.end());
  return list;
}

TEST(TieOrder, TakesTheBest) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const uint64_t length = 1 + random() % 300, top = 1 + random() % length, seen = 1 + random() % length;
    std::vector<uint32_t> scores(seen);
    for (uint32_t& score : scores) score = random() % 8;
    const auto found = taken(scores, length, top);
    ASSERT_EQ(std::adjacent_find(found.begin(), found.end()), found.end());
    std::vector<uint32_t> best = scores, got;
    std::sort(best.begin(), best.end(), std::greater<>());
    for (const uint32_t entry : found) {
      if (entry < seen) got.push_back(scores[entry]);
    }
    std::sort(got.begin(), got.end(), std::greater<>());
    best.resize(std::min<uint64_t>(top, seen));
    ASSERT_EQ(got, best);
  }
}

#ifdef __GLIBCXX__
TEST(TieOrder, IsThatOfTheReference) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    const uint64_t length = 1 + random() % (round % 10 == 0 ? 3000 : 200), seen = 1 + random() % length;
    const uint64_t top = 1 + random() % (round % 2 == 0 ? std::max<uint64_t>(1, length / 70) : length);
    const uint32_t values = round % 3 == 0 ? 2 : 1 + random() % 40;
    std::vector<uint32_t> scores(seen);
    for (uint32_t& score : scores) score = random() % values;
    if (round % 5 == 0) std::sort(scores.begin(), scores.end());
    ASSERT_EQ(taken(scores, length, top), taken_by_library(scores, length, top)) << length << " entries, " << seen << " seen, top " << top;
  }
}

// Organ pipes make quickselect run out of depth.
TEST(TieOrder, DeepSplitsToo) {
  for (const uint32_t length : {1000u, 4097u}) {
    std::vector<uint32_t> scores(length);
    for (uint32_t i = 0; i < length; ++i) scores[i] = std::min(i, length - i) / 2;
    for (const uint64_t top : {length / 2, length / 3, length - 1})
      ASSERT_EQ(taken(scores, length, top), taken_by_library(scores, length, top));
  }
}
#endif

}  // namespace
}  // namespace chorus::kernels
