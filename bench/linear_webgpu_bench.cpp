// Rates of linear on a WebGPU adapter at the shapes of the Qwen3.5 0.8B and 4B backbones, with the variant that the plan chooses and,
// on request, with every variant.
// With --decode: few rows at the shapes of language models, GB/s of weights against the adapter's own copy rate. There the time is the wall
// clock of a batch of products that wait for each other, as in a model, without time stamps (which cost more than a small product).
// usage: linear_webgpu_bench [--decode] [--all] [--f16|--bf16] [--rows M]... [--adapter NAME]
#include <algorithm>
#include <chrono>
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
constexpr Shape kDecodeShapes[] = {
    {512, 2048, "keys, values"},       {2048, 2048, "attention out"},       {4096, 2048, "queries"},     {2048, 4096, "attention out"},
    {6144, 2048, "q, k, v"},           {8192, 4096, "wide attention"},      {14336, 4096, "gate or up"}, {4096, 14336, "down"},
    {50304, 2048, "vocabulary 50304"}, {151936, 2048, "vocabulary 151936"},
};
constexpr uint64_t kDecodeCacheBytes = uint64_t{512} << 20;  // far beyond any cache
constexpr uint32_t kDecodeRunsMax = 2000;
constexpr uint64_t kCacheBytes = uint64_t{128} << 20;  // weights are rotated through at least this much memory
constexpr double kMillisecondsPerRun = 8;

struct Options {
  bool all_variants = false;
  bool decode = false;
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
    const uint64_t wanted = options.decode ? kDecodeCacheBytes : kCacheBytes;
    for (uint64_t held = 0; weights.empty() || held < wanted; held += bytes) {
      CHORUS_ASSIGN(auto weight, backend_.create_weight("bench", shape.cols, shape.depth, options.dtype,
                                                        [](uint32_t first, uint32_t, std::span<float> out) { return fill(first, out); }));
      weights.push_back(std::move(weight));
    }
    for (const uint32_t rows : options.rows) {
      std::vector<std::string> variants = {""};
      for (const std::string& variant : backend_.variants("linear")) {
        if (options.all_variants && variant.starts_with("row") == (rows <= 8) && variant != "split") variants.push_back(variant);
      }
      for (const std::string& variant : variants) {
        CHORUS_TRY(options.decode ? run_decode(shape, rows, weights, variant) : run_rows(shape, rows, weights, variant));
      }
    }
    return {};
  }

  Status measure_copy_rate() {
    CHORUS_ASSIGN(const compute::DevicePeak peak, backend_.measure_peak());
    copy_rate_ = peak.bytes_per_second;
    std::printf("copy: %.0f GB/s, bytes read plus bytes written\n", copy_rate_ * 1e-9);
    return {};
  }

 private:
  // All products write one buffer, so each waits for the one before.
  Status run_decode(const Shape& shape, uint32_t rows, const std::vector<std::shared_ptr<compute::Weight>>& weights,
                    std::string_view variant) {
    CHORUS_ASSIGN(auto x, backend_.create_buffer(uint64_t{rows} * shape.depth * 4, "x"));
    CHORUS_ASSIGN(auto out, backend_.create_buffer(uint64_t{rows} * shape.cols * 4, "out"));
    compute::LinearArgs args;
    args.x = {x.get(), 0, rows, shape.depth, shape.depth};
    args.out = {out.get(), 0, rows, shape.cols, shape.cols};
    CHORUS_TRY(backend_.force_variant("linear", variant));
    uint32_t repeats = static_cast<uint32_t>(weights.size());
    std::vector<double> times;
    for (int run = 0; run < 6; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      CHORUS_ASSIGN(auto batch, backend_.begin_batch());
      for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        args.weight = weights[repeat % weights.size()].get();
        CHORUS_TRY(batch->linear(args));
      }
      CHORUS_TRY(batch->submit());
      float probe = 0;
      CHORUS_TRY(backend_.read(*out, 0, std::as_writable_bytes(std::span(&probe, 1))));
      const double milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
      if (run > 0) times.push_back(milliseconds / repeats);
      if (run == 0) continue;  // compiles
      if (run == 1) {
        repeats =
            static_cast<uint32_t>(std::clamp(4 * kMillisecondsPerRun * repeats / std::max(milliseconds, 1e-3), 2.0, 1.0 * kDecodeRunsMax));
        times.clear();
      }
    }
    std::sort(times.begin(), times.end());
    const double time = times[times.size() / 2];
    const kernels::LinearCut cut = kernels::cut_linear({rows, shape.cols, shape.depth / 4, weights[0]->dtype()}, capabilities_, variant);
    const double rate = static_cast<double>(weights[0]->bytes()) / time * 1e3;
    std::printf("%-18s M %2u N %6u K %5u  %6.1f MB  %-7s%s  %8.2f us  %7.0f GB/s  %5.1f %% of copy\n", shape.what, rows, shape.cols,
                shape.depth, static_cast<double>(weights[0]->bytes()) * 1e-6, std::string(cut.variant).c_str(),
                variant.empty() ? " *" : "  ", time * 1e3, rate * 1e-9, 100 * rate / copy_rate_);
    std::fflush(stdout);
    return backend_.force_variant("linear", "");
  }

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
  double copy_rate_ = 1;
};

Options parse(int count, char** words) {
  Options options;
  for (int index = 1; index < count; ++index) {
    const std::string_view word = words[index];
    if (word == "--all") options.all_variants = true;
    if (word == "--decode") options.decode = true;
    if (word == "--f16") options.dtype = DType::f16;
    if (word == "--bf16") options.dtype = DType::bf16;
    if (word == "--rows" && index + 1 < count) options.rows.push_back(static_cast<uint32_t>(std::strtoul(words[++index], nullptr, 10)));
    if (word == "--adapter" && index + 1 < count) options.adapter = words[++index];
  }
  if (options.rows.empty() && options.decode) options.rows = {1, 4, 8};
  if (options.rows.empty()) options.rows = {1, 8, 25, 60, 200, 300, 512, 2048};
  return options;
}

Status run(const Options& options) {
  gpu::DeviceOptions device;
  device.adapter = options.adapter;
  device.toggles = gpu::ToggleSet::fast;
  device.timestamps = !options.decode;
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
  if (!options.decode) {
    for (const Shape& shape : kShapes) CHORUS_TRY(bench.run_shape(shape, options));
    return {};
  }
  CHORUS_TRY(bench.measure_copy_rate());
  for (const Shape& shape : kDecodeShapes) CHORUS_TRY(bench.run_shape(shape, options));
  return {};
}

}  // namespace
}  // namespace chorus

int main(int count, char** words) {
  const chorus::Status status = chorus::run(chorus::parse(count, words));
  if (!status.ok()) std::fprintf(stderr, "linear_webgpu_bench: %s\n", status.error().to_line().c_str());
  return status.ok() ? 0 : 1;
}
