// The adapter that the environment selects (VK_DRIVER_FILES names the Vulkan driver). Software adapters are welcome here.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "backends/webgpu/webgpu_backend.h"

namespace chorus::tests {

inline gpu::DeviceOptions test_device_options() {
  gpu::DeviceOptions options;
  options.allow_software = true;
  return options;
}

// Shared by the tests of one process; null, after a failed expectation, when there is no adapter.
inline compute::Backend* shared_webgpu_backend() {
  static Result<std::unique_ptr<compute::Backend>> backend = backends::create_webgpu_backend(test_device_options());
  EXPECT_TRUE(backend.ok()) << (backend.ok() ? "" : backend.error().to_line());
  return backend.ok() ? backend->get() : nullptr;
}

}  // namespace chorus::tests
