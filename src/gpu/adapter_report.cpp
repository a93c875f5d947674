#include "gpu/adapter_report.h"

#include <algorithm>

namespace chorus::gpu {
namespace {

// What every base variant may use; WebGPU's own default limits.
constexpr uint32_t kInvocationsNeeded = 256;
constexpr uint32_t kWorkgroupBytesNeeded = 16384;
constexpr uint32_t kStorageBuffersNeeded = 8;
constexpr uint64_t kBindingBytesNeeded = 128ull << 20;
constexpr uint64_t kBindingBytesWished = 1ull << 30;
constexpr uint32_t kWorkgroupBytesWished = 32768;

void need(std::vector<Lack>& lacks, const char* name, uint64_t found, uint64_t expected) {
  if (found >= expected) return;
  lacks.push_back({std::string(name) + " of " + std::to_string(expected), "no kernel set runs; found " + std::to_string(found), true});
}

bool has_f32_result(const Capabilities& adapter) {
  return std::any_of(adapter.subgroup_matrix_shapes.begin(), adapter.subgroup_matrix_shapes.end(),
                     [](const SubgroupMatrixShape& shape) { return shape.component == "f16" && shape.result == "f32"; });
}

}  // namespace

std::vector<Lack> lacks_of(const Capabilities& adapter) {
  std::vector<Lack> lacks;
  need(lacks, "workgroup invocations", adapter.workgroup_invocations_max, kInvocationsNeeded);
  need(lacks, "workgroup memory bytes", adapter.workgroup_storage_bytes_max, kWorkgroupBytesNeeded);
  need(lacks, "storage buffers per shader", adapter.storage_buffers_max, kStorageBuffersNeeded);
  need(lacks, "storage binding bytes", adapter.storage_binding_bytes_max, kBindingBytesNeeded);
  if (adapter.software) lacks.push_back({"hardware", "a software adapter: correct, slow", false});
  if (!adapter.f16) lacks.push_back({"f16", "16-bit weights are widened by bit operations; no f16 arithmetic", false});
  if (!adapter.subgroups) lacks.push_back({"subgroups", "sums go through workgroup memory", false});
  if (!adapter.subgroup_matrix) {
    lacks.push_back({"subgroup matrices", "matrix products use plain arithmetic", false});
  } else if (!has_f32_result(adapter)) {
    lacks.push_back({"subgroup matrices with f16 inputs and f32 sums", "matrix products use plain arithmetic", false});
  }
  if (!adapter.timestamps) lacks.push_back({"timestamp queries", "no per-kernel times", false});
  if (adapter.workgroup_storage_bytes_max < kWorkgroupBytesWished) {
    lacks.push_back({"32 KiB of workgroup memory", "smaller tiles", false});
  }
  if (adapter.storage_binding_bytes_max < kBindingBytesWished) {
    lacks.push_back({"storage bindings of 1 GiB",
                     "weights over " + std::to_string(adapter.storage_binding_bytes_max >> 20) + " MiB are split into shards", false});
  }
  return lacks;
}

Status check_required(const Capabilities& adapter) {
  for (const Lack& lack : lacks_of(adapter)) {
    if (lack.required) {
      return make_error(ErrorCode::unsupported, "webgpu: adapter " + adapter.name + " lacks " + lack.feature + ": " + lack.effect);
    }
  }
  return {};
}

}  // namespace chorus::gpu
