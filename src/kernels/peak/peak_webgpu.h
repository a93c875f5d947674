// Measures what a WebGPU device reaches on loops that do nothing else.
#pragma once

#include "base/result.h"
#include "compute/backend.h"
#include "gpu/device.h"

namespace chorus::kernels {

// About half a second. Work recorded before is submitted first.
Result<compute::DevicePeak> measure_webgpu_peak(gpu::Device& device);

}  // namespace chorus::kernels
