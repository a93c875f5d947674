// Reading a mappable buffer on the host.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <cstddef>
#include <span>

#include "base/result.h"
#include "gpu/core.h"

namespace chorus::gpu {

// Waits for submitted work that writes `buffer` (MapRead), copies its first bytes out and unmaps it.
Status read_mapped(Core& core, const wgpu::Buffer& buffer, std::span<std::byte> out);

}  // namespace chorus::gpu
