// The instruction sets that the SIMD kernels are built for, and the choice among them at run time.
// A SIMD kernel file includes this header first, then hwy/foreach_target.h and hwy/highway.h, exports its entry functions with HWY_EXPORT
// and calls them through CHORUS_SIMD(function, target).
#pragma once

// Built: AVX-512, AVX2, SSE4, NEON and the portable form. The kernels keep vectors in arrays, which sizeless types (SVE) do not allow;
// SSSE3 alone is no longer met.
#ifdef CHORUS_FEW_SIMD_TARGETS  // sanitizer builds, for their time: one set with wide vectors, and the portable form
#define CHORUS_LEFT_OUT_TARGETS (HWY_SSE4 | HWY_AVX3)
#else
#define CHORUS_LEFT_OUT_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS (CHORUS_LEFT_OUT_TARGETS | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::kernels {

// Names of the targets that are built and that this processor has, best first: "avx3", "avx2", "sse4", "neon", "emu128" (portable).
const std::vector<std::string>& simd_targets();

// The target whose name starts `variant` (up to a '.'); the best one for an empty variant.
int64_t simd_target(std::string_view variant);

// Position in a table made by HWY_EXPORT. Highway keeps one process-wide choice; this one is per call.
inline size_t simd_table_index(int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  return static_cast<void>(target), 0;
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return chosen.GetIndex();
#endif
}

}  // namespace chorus::kernels

#define CHORUS_SIMD(function, target) (*(HWY_DISPATCH_TABLE(function)[::chorus::kernels::simd_table_index(target)]))
