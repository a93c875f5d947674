// Chooses and builds a compute backend. The only folder besides apps and tests that knows concrete backends.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "compute/backend.h"

namespace chorus::runtime {

enum class DeviceRequest { automatic, webgpu, cpu };

struct BackendRequest {
  DeviceRequest device = DeviceRequest::automatic;
  std::string adapter;  // part of a WebGPU adapter's name
  bool fast_toggles = true;
  bool profile_kernels = false;
  std::string pipeline_cache;  // folder; empty: none
  uint32_t cpu_threads = 0;    // 0: all
  LogSink log;
};

struct BackendChoice {
  std::unique_ptr<compute::Backend> backend;
  std::string reason;  // why this one, in a sentence
};

// automatic: a hardware adapter if there is one, else the CPU. webgpu: an adapter (a software one counts), or an Error.
Result<BackendChoice> choose_backend(const BackendRequest& request);

}  // namespace chorus::runtime
