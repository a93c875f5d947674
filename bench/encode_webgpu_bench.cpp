// Processor time of encoding: 300 small dispatches and one submit, as in one forward pass. The device's own work is not counted.
// Run it on the adapter in question: VK_DRIVER_FILES selects the driver on Linux.
#include <benchmark/benchmark.h>
#include <time.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace {

using chorus::gpu::Access;
using chorus::gpu::Device;

constexpr uint32_t kDispatches = 300;
constexpr uint32_t kKernels = 12;
constexpr uint32_t kBindings = 5;

// Of this thread: other programs and the driver's own threads do not count.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string kernel_text(uint32_t index) {
  return R"(
struct Params { count: u32, scale: f32, p0: u32, p1: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> c: array<f32>;
@group(0) @binding(4) var<storage, read> d: array<f32>;
@group(0) @binding(5) var<storage, read_write> result: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) { result[id.x] = a[id.x] + b[id.x] * c[id.x] + d[id.x] * params.scale + f32()" +
         std::to_string(index) + R"(); }
}
)";
}

struct Params {
  uint32_t count = 64;
  float scale = 1;
  uint32_t padding[2] = {};
};

void encode(benchmark::State& state, chorus::gpu::ToggleSet toggles, bool fresh_buffers) {
  chorus::gpu::DeviceOptions options;
  options.allow_software = true;
  options.toggles = toggles;
  auto device = Device::create(options);
  if (!device.ok()) return state.SkipWithError(device.error().to_line().c_str());
  std::vector<std::string> texts, names;
  for (uint32_t index = 0; index < kKernels; ++index) {
    texts.push_back(kernel_text(index));
    names.push_back("kernel_" + std::to_string(index));
  }
  std::vector<chorus::gpu::ShaderSource> shaders;
  for (uint32_t index = 0; index < kKernels; ++index) shaders.push_back({names[index], "f32", texts[index]});
  std::vector<std::shared_ptr<chorus::gpu::Storage>> storages;
  const auto fill = [&] {
    storages.clear();
    for (uint32_t index = 0; index < kDispatches + kBindings; ++index) storages.push_back(*(*device)->create_storage(4096, "bench"));
  };
  fill();
  const Params params;
  double record_seconds = 0, submit_seconds = 0;
  for (auto _ : state) {
    if (fresh_buffers) fill();
    const double start = processor_seconds();
    for (uint32_t step = 0; step < kDispatches; ++step) {
      chorus::gpu::Dispatch dispatch;
      dispatch.shader = &shaders[step % kKernels];
      for (uint32_t at = 0; at + 1 < kBindings; ++at) dispatch.bindings.push_back({storages[step + at], Access::read});
      dispatch.bindings.push_back({storages[step + kBindings - 1], Access::read_write});
      dispatch.params = std::as_bytes(std::span(&params, 1));
      dispatch.grid = {1, 1, 1};
      if (auto status = (*device)->dispatch(dispatch); !status.ok()) return state.SkipWithError(status.error().to_line().c_str());
    }
    const double recorded = processor_seconds();
    if (auto status = (*device)->submit(); !status.ok()) return state.SkipWithError(status.error().to_line().c_str());
    const double submitted = processor_seconds();
    (void)(*device)->wait_idle();
    const double record = recorded - start;
    const double submit = submitted - recorded;
    record_seconds += record;
    submit_seconds += submit;
    state.SetIterationTime(record + submit);
  }
  const double scale = 1e6 / (static_cast<double>(state.iterations()) * kDispatches);
  state.counters["record_us_per_dispatch"] = record_seconds * scale;
  state.counters["submit_us_per_dispatch"] = submit_seconds * scale;
}

BENCHMARK_CAPTURE(encode, safe, chorus::gpu::ToggleSet::safe, false)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(encode, fast, chorus::gpu::ToggleSet::fast, false)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(encode, fast_fresh_buffers, chorus::gpu::ToggleSet::fast, true)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
