// Front door of the cpu backend: the whole operation set on the processor, with threads and SIMD chosen at run time.
// Owns: host memory, threads, the choice of implementation. Must not know: models, files.
// Operations run when a batch method is called, so a write made while a batch is open is seen by the operations called after it.
// Results do not depend on the number of threads, and those of a row not on the rows beside it.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/backend.h"

namespace chorus::backends {

struct CpuOptions {
  uint32_t threads = 0;             // 0: one per processor
  uint64_t memory_limit_bytes = 0;  // 0: the machine's memory
  bool profile = false;             // fills take_kernel_times()
};

// Never fails: if the threads cannot be started, it works with the caller's thread alone and says so in fallbacks().
std::unique_ptr<compute::Backend> create_cpu_backend(const CpuOptions& options);

}  // namespace chorus::backends
