// Rates of linear on a WebGPU adapter at the shapes of the Qwen3.5 0.8B and 4B backbones, with the variant that the plan chooses and,
// on request, with every variant.
// usage: linear_webgpu_bench [--all] [--f16] [--rows M]... [--adapter NAME]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/webgpu/webgpu_backend.h"
#include "kernels/linear/linear_webgpu.h"

namespace chorus {
namespace {

struct Shape {
  uint32_t cols, depth;
  const char* what;
};
constexpr Shape kShapes[] = {
    {7168, 1024, "0.8B gate+up"}, {8224, 1024, "0.8B delta in"},     {1024, 3584, "0.8B down"},
    {1024, 2048, "0.8B out"},     {5120, 1024, "0.8B attention in"}, {18432, 2560, "4B gate+up"},
    {12352, 2560, "4B delta in"}, {2560, 9216, "4B down"},           {2560, 4096, "4B out"},
};
constexpr uint64_t kCacheBytes = uint64_t{128} << 20;  // weights are rotated through at least this much memory
constexpr double kMillisecondsPerRun = 8;

struct Options {
  bool all_variants = false;
  DType dtype = DType::f32;
  std::vector<uint32_t> rows;
  std::string adapter;
};

Status fill(uint32_t first_row, std::span<float> values) {
  uint32_t state = first_row * 2654435761u + 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return {};
}

class Bench {
 public:
  Bench(compute::Backend& backend, gpu::Capabilities capabilities) : backend_(backend), capabilities_(std::move(capabilities)) {}

  Status run_shape(const Shape& shape, const Options& options) {
    std::vector<std::shared_ptr<compute::Weight>> weights;
    const uint64_t bytes = backend_.weight_bytes(shape.cols, shape.depth, options.dtype);
    for (uint64_t held = 0; weights.empty() || held < kCacheBytes; held += bytes) {
      CHORUS_ASSIGN(auto weight, backend_.create_weight("bench", shape.cols, shape.depth, options.dtype,
                                                        [](uint32_t first, uint32_t, std::span<float> out) { return fill(first, out); }));
      weights.push_back(std::move(weight));
    }
    for (const uint32_t rows : options.rows) {
      CHORUS_TRY(run_rows(shape, rows, weights, ""));
      if (!options.all_variants) continue;
      for (const std::string& variant : backend_.variants("linear")) {
        if ((variant == "row") != (rows <= 8) || variant == "split") continue;
        CHORUS_TRY(run_rows(shape, rows, weights, variant));
      }
    }
    return {};
  }

 private:
  Status run_rows(const Shape& shape, uint32_t rows, const std::vector<std::shared_ptr<compute::Weight>>& weights,
                  std::string_view variant) {
    std::vector<float> values(size_t{rows} * shape.depth);
    CHORUS_TRY(fill(rows, values));
    CHORUS_ASSIGN(auto x, backend_.create_buffer(values.size() * 4, "x"));
    CHORUS_ASSIGN(auto out, backend_.create_buffer(uint64_t{rows} * shape.cols * 4, "out"));
    CHORUS_TRY(backend_.write(*x, 0, std::as_bytes(std::span(values))));
    compute::LinearArgs args;
    args.x = {x.get(), 0, rows, shape.depth, shape.depth};
    args.out = {out.get(), 0, rows, shape.cols, shape.cols};
    CHORUS_TRY(backend_.force_variant("linear", variant));
    uint32_t repeats = 2;
    std::vector<double> times;
    for (int run = 0; run < 4; ++run) {
      CHORUS_TRY(backend_.take_kernel_times());
      CHORUS_ASSIGN(auto batch, backend_.begin_batch());
      for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        args.weight = weights[repeat % weights.size()].get();
        CHORUS_TRY(batch->linear(args));
      }
      CHORUS_TRY(batch->submit());
      float probe = 0;
      CHORUS_TRY(backend_.read(*out, 0, std::as_writable_bytes(std::span(&probe, 1))));
      CHORUS_ASSIGN(const std::vector<compute::KernelTime> kernels, backend_.take_kernel_times());
      double milliseconds = 0;
      for (const compute::KernelTime& kernel : kernels) milliseconds += kernel.milliseconds;
      if (run == 0) {
        repeats = static_cast<uint32_t>(std::clamp(kMillisecondsPerRun * repeats / std::max(milliseconds, 1e-3), 2.0, 300.0));
      } else {
        times.push_back(milliseconds / repeats);
      }
    }
    std::sort(times.begin(), times.end());
    const kernels::LinearCut cut = kernels::cut_linear({rows, shape.cols, shape.depth / 4, weights[0]->dtype()}, capabilities_, variant);
    const double operations = 2.0 * rows * shape.cols * shape.depth;
    std::printf("%-18s M %5u N %5u K %5u  %-10s k in %2u%s  %8.4f ms  %6.2f TFLOP/s\n", shape.what, rows, shape.cols, shape.depth,
                std::string(cut.variant).c_str(), cut.splits, variant.empty() ? " *" : "  ", times[1], operations / times[1] * 1e-9);
    std::fflush(stdout);
    return backend_.force_variant("linear", "");
  }

  compute::Backend& backend_;
  gpu::Capabilities capabilities_;
};

Options parse(int count, char** words) {
  Options options;
  for (int index = 1; index < count; ++index) {
    const std::string_view word = words[index];
    if (word == "--all") options.all_variants = true;
    if (word == "--f16") options.dtype = DType::f16;
    if (word == "--rows" && index + 1 < count) options.rows.push_back(static_cast<uint32_t>(std::strtoul(words[++index], nullptr, 10)));
    if (word == "--adapter" && index + 1 < count) options.adapter = words[++index];
  }
  if (options.rows.empty()) options.rows = {1, 8, 25, 60, 200, 300, 512, 2048};
  return options;
}

Status run(const Options& options) {
  gpu::DeviceOptions device;
  device.adapter = options.adapter;
  device.toggles = gpu::ToggleSet::fast;
  device.timestamps = true;
  device.allow_software = true;
  CHORUS_ASSIGN(auto backend, backends::create_webgpu_backend(device));
  CHORUS_ASSIGN(const std::vector<gpu::Capabilities> adapters, gpu::list_adapters());
  gpu::Capabilities capabilities;
  for (const gpu::Capabilities& adapter : adapters) {
    if (adapter.name == backend->info().device) capabilities = adapter;
  }
  std::printf("%s, %s, weights %s\n", backend->info().device.c_str(), backend->info().driver.c_str(),
              std::string(dtype_name(options.dtype)).c_str());
  Bench bench(*backend, capabilities);
  for (const Shape& shape : kShapes) CHORUS_TRY(bench.run_shape(shape, options));
  return {};
}

}  // namespace
}  // namespace chorus

int main(int count, char** words) {
  const chorus::Status status = chorus::run(chorus::parse(count, words));
  if (!status.ok()) std::fprintf(stderr, "linear_webgpu_bench: %s\n", status.error().to_line().c_str());
  return status.ok() ? 0 : 1;
}
