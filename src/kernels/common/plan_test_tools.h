// What the plan tests share: buffers and storages without a device, and the capabilities of a minimal adapter.
#pragma once

#include "compute/backend.h"
#include "gpu/device.h"

namespace chorus::kernels {

class FakeBuffer final : public compute::Buffer {
 public:
  explicit FakeBuffer(uint64_t bytes = 1 << 20) : Buffer(bytes) {}
};

class FakeStorage final : public gpu::Storage {
 public:
  explicit FakeStorage(uint64_t bytes = 1 << 20) : bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }

 private:
  uint64_t bytes_;
};

inline gpu::Capabilities minimal_capabilities() {
  gpu::Capabilities capabilities;
  capabilities.storage_binding_bytes_max = 128u << 20;
  capabilities.buffer_bytes_max = 256u << 20;
  capabilities.workgroup_invocations_max = 256;
  capabilities.workgroup_size_x_max = 256;
  capabilities.workgroup_storage_bytes_max = 16384;
  capabilities.workgroups_per_dimension_max = 65535;
  capabilities.storage_buffers_max = 8;
  return capabilities;
}

}  // namespace chorus::kernels
