// Pipelines by (kernel, variant) with explicit layouts. Owns: shader compilation and its error messages.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "gpu/core.h"
#include "gpu/device.h"

namespace chorus::gpu {

// @group(0): @binding(0) uniform Params at a dynamic offset, then storage bindings with the listed access.
struct Layout {
  uint64_t key = 0;  // access list as bits, with a leading one
  wgpu::BindGroupLayout bind_group;
  wgpu::PipelineLayout pipeline;
};

struct Pipeline {
  std::string name;  // "rms_norm/f32"
  std::string_view text;
  const Layout* layout = nullptr;
  wgpu::ComputePipeline pipeline;
};

inline constexpr uint32_t kParamsSlotBytes = 256;

class Pipelines {
 public:
  explicit Pipelines(Core& core) : core_(core) {}
  // Compiles on first use. Errors name the kernel, the variant and the line.
  Result<const Pipeline*> get(const ShaderSource& shader, std::span<const Access> access);

 private:
  Result<const Layout*> layout_of(std::span<const Access> access);
  Result<wgpu::ShaderModule> compile(const ShaderSource& shader, const std::string& name);
  Result<std::unique_ptr<Pipeline>> build(const ShaderSource& shader, std::span<const Access> access);

  Core& core_;
  std::map<uint64_t, std::unique_ptr<Layout>> layouts_;
  // By address of the built-in text; the name and text are compared on every hit.
  std::unordered_map<const char*, std::unique_ptr<Pipeline>> pipelines_;
};

// The access list as a number: a leading one, then one bit per binding.
uint64_t access_key(std::span<const Access> access);

}  // namespace chorus::gpu
