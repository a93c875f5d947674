// Folding of long grids. Pure.
#include <algorithm>
#include <cmath>

#include "gpu/device.h"

namespace chorus::gpu {

Grid fold_grid(uint64_t count, uint32_t per_dimension_max) {
  if (count == 0) return {0, 1, 1};
  if (count <= per_dimension_max) return {static_cast<uint32_t>(count), 1, 1};
  // Near-square: the fewest idle workgroups for an x that is about the root. A count past limit^2 keeps its true size in y, which
  // dispatch() refuses.
  uint64_t x = static_cast<uint64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  x = std::min<uint64_t>(x, per_dimension_max);
  const uint64_t y = (count + x - 1) / x;
  x = std::min<uint64_t>((count + y - 1) / y, per_dimension_max);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(std::min<uint64_t>(y, 0xffffffffu)), 1};
}

}  // namespace chorus::gpu
