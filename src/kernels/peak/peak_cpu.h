// Measures what the processor reaches on loops that do nothing else.
#pragma once

#include "base/result.h"
#include "base/thread_pool.h"
#include "compute/backend.h"

namespace chorus::kernels {

// About half a second, on all threads of the pool: f32 multiply-adds in registers, and a sum over memory far larger than the caches.
Result<compute::DevicePeak> measure_cpu_peak(ThreadPool& pool);

}  // namespace chorus::kernels
