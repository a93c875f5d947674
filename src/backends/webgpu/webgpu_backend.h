// The webgpu backend: buffers, weights and the operation set of compute/backend.h on one gpu::Device.
// Must not know: WGSL, models.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/result.h"
#include "compute/backend.h"
#include "gpu/device.h"

namespace chorus::backends {

Result<std::unique_ptr<compute::Backend>> create_webgpu_backend(const gpu::DeviceOptions& options, LogSink log = {});
// On a device that the caller made.
std::unique_ptr<compute::Backend> create_webgpu_backend(std::unique_ptr<gpu::Device> device);

}  // namespace chorus::backends
