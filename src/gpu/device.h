// Front door of the WebGPU device layer (Dawn). Owns: instance, adapters, device, buffers, pipelines, command recording, readback.
// Must not know: operations, tensors, models. Only this folder and the webgpu half of kernels/ and backends/ include WebGPU headers.
//
// Errors: validation, out-of-memory and internal errors of Dawn, uncaptured errors and device loss all end as the Error of the call
// that hit them or of the next one on that device; nothing aborts. One thread at a time uses a Device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace chorus::gpu {

// One matrix shape of subgroup matrix instructions: C[m, n] += A[m, k] B[k, n].
struct SubgroupMatrixShape {
  std::string component;  // "f16", "f32", "u8", "i8": type of A and B
  std::string result;     // "f16", "f32", "u32", "i32": type of C
  uint32_t m = 0, n = 0, k = 0;
};

// What an adapter offers, read once. Limits are those the device was (or would be) created with.
struct Capabilities {
  std::string name;  // adapter name ("llvmpipe (LLVM 15.0.6, 256 bits)", "NVIDIA H200")
  std::string vendor;
  std::string architecture;
  std::string driver;   // driver description and version
  std::string backend;  // "vulkan", "metal", "d3d12" ...
  bool software = false;
  bool f16 = false;
  bool subgroups = false;
  bool subgroup_size_control = false;
  bool subgroup_matrix = false;
  bool timestamps = false;
  std::vector<SubgroupMatrixShape> subgroup_matrix_shapes;  // empty without subgroup_matrix
  uint32_t subgroup_size_min = 0;
  uint32_t subgroup_size_max = 0;
  uint64_t storage_binding_bytes_max = 0;
  uint64_t buffer_bytes_max = 0;
  uint32_t workgroup_invocations_max = 0;
  uint32_t workgroup_size_x_max = 0;
  uint32_t workgroup_storage_bytes_max = 0;
  uint32_t workgroups_per_dimension_max = 0;  // 65,535
  uint32_t storage_buffers_max = 0;           // per shader stage
  uint32_t storage_offset_alignment = 256;
  uint32_t uniform_offset_alignment = 256;
};

enum class ToggleSet {
  safe,  // Dawn's defaults: validation, robustness, zero-initialised workgroup memory
  fast,  // those off; for release and benchmarks
};

enum class PowerPreference { any, low, high };

struct DeviceOptions {
  std::string adapter;  // part of the adapter's name, case-insensitive; empty: any
  std::string backend;  // "vulkan", ...; empty: any
  PowerPreference power = PowerPreference::any;
  bool allow_software = false;
  ToggleSet toggles = ToggleSet::safe;
  bool timestamps = false;      // per-dispatch GPU timestamps
  std::string cache_directory;  // pipeline blobs; empty: no cache on disk
  // Test hooks: pretend the adapter has less than it has.
  bool hide_f16 = false;
  bool hide_subgroups = false;
  uint64_t storage_binding_bytes_cap = 0;  // 0: no cap
  uint32_t workgroups_per_dimension_cap = 0;
  uint64_t memory_bytes_cap = 0;          // creations past it fail with out_of_memory; 0: no cap
  uint64_t fake_out_of_memory_bytes = 0;  // Dawn reports out of memory for buffers of this size and more; 0: never
  uint32_t wait_timeout_seconds = 600;    // a device that answers later than this counts as lost
};

// Every adapter that Dawn finds, without the Null backend.
Result<std::vector<Capabilities>> list_adapters();

// WGSL text of one kernel variant. Lives for the whole program (built in).
struct ShaderSource {
  std::string_view kernel;   // folder name, "rms_norm"
  std::string_view variant;  // line of <kernel>.variants
  std::string_view text;     // one compute entry point named "main"
};

// A storage buffer. Zero-filled at creation. Destroyed with its last owner.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual uint64_t bytes() const = 0;
};

enum class Access : uint8_t { read, read_write };

// One storage binding. Bind what is only read as `read`: WebGPU then needs fewer barriers.
struct Binding {
  std::shared_ptr<const Storage> storage;
  Access access = Access::read;
  uint64_t offset = 0;  // bytes, a multiple of storage_offset_alignment
  uint64_t size = 0;    // bytes; 0: to the end
};

struct Grid {
  uint32_t x = 1, y = 1, z = 1;  // workgroups
};

// Folds `count` workgroups into x and y near-square when it exceeds the limit of one dimension. The shader computes
// index = workgroup_id.x + workgroup_id.y * num_workgroups.x and leaves when index >= count.
Grid fold_grid(uint64_t count, uint32_t per_dimension_max);

// Bindings: @group(0) @binding(0) is the uniform Params block; storage bindings follow as @binding(1), (2) ... in order.
struct Dispatch {
  const ShaderSource* shader = nullptr;
  std::vector<Binding> bindings;
  std::span<const std::byte> params;  // a multiple of 16 bytes, at most 256
  Grid grid;
};

struct DispatchTime {
  std::string kernel;  // "rms_norm/f32"
  uint32_t calls = 0;
  double milliseconds = 0;
};

class Device {
 public:
  static Result<std::unique_ptr<Device>> create(const DeviceOptions& options, const LogSink& log = {});
  virtual ~Device() = default;
  virtual const Capabilities& capabilities() const = 0;

  virtual Result<std::shared_ptr<Storage>> create_storage(uint64_t bytes, std::string_view label) = 0;
  // Runs after everything submitted so far and before everything submitted later (also what is recorded already). Multiples of 4 bytes.
  virtual Status write(const std::shared_ptr<Storage>& storage, uint64_t offset, std::span<const std::byte> data) = 0;
  // Compiles the pipeline of a shader now (else it happens at its first dispatch). `access` lists the storage bindings.
  virtual Status warm(const ShaderSource& shader, std::span<const Access> access) = 0;
  // Appended to the open compute pass.
  virtual Status dispatch(const Dispatch& dispatch) = 0;
  virtual Status copy(const std::shared_ptr<const Storage>& source, uint64_t source_offset, const std::shared_ptr<Storage>& target,
                      uint64_t target_offset, uint64_t bytes) = 0;
  // Sends what was recorded. Does not wait.
  virtual Status submit() = 0;
  // Forgets what was recorded since the last submit.
  virtual void discard() = 0;
  // Changes with every submit of something and every discard.
  virtual uint64_t recording() const = 0;
  // Submits, then waits: asleep, but for the last moments of a short wait that resembles the one before (core.h). Reports every error seen
  // since the last call.
  virtual Status read(const std::shared_ptr<const Storage>& storage, uint64_t offset, std::span<std::byte> data) = 0;
  virtual Status wait_idle() = 0;

  virtual uint64_t bytes_in_use() const = 0;
  virtual uint64_t bytes_peak() const = 0;
  // Dispatches sent to the device or recorded for it, ever.
  virtual uint64_t dispatches() const = 0;
  // GPU time of each dispatch since the last call, summed per kernel; empty without DeviceOptions::timestamps.
  virtual Result<std::vector<DispatchTime>> take_times() = 0;
  // Test hook: destroys the device, as a driver reset would.
  virtual void force_loss() = 0;
};

}  // namespace chorus::gpu
