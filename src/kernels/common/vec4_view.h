#pragma once

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

// True when every row of the view can be read four elements at a time (bindings start at multiples of 16 bytes).
inline bool is_vec4_view(const compute::View& view) { return view.offset % 4 == 0 && view.stride % 4 == 0 && view.cols % 4 == 0; }

}  // namespace chorus::kernels
