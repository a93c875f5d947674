// Device time of attend and select_keys at the shapes of published models, every variant: decode (one row) and prefill (a chunk of rows).
// Several calls are recorded into one batch and the whole is timed, so that the cost of submitting is spread.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/webgpu/webgpu_backend.h"

namespace {

using namespace chorus;

constexpr uint32_t kCalls = 16;

Result<std::unique_ptr<compute::Backend>> make_backend(bool timestamps) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  options.toggles = gpu::ToggleSet::fast;
  options.timestamps = timestamps;
  return backends::create_webgpu_backend(options);
}

struct Memory {
  compute::Backend& backend;
  std::vector<std::shared_ptr<compute::Buffer>> buffers;
  Status status;

  // A matrix of small varied values; denormals and NaN would time something else.
  compute::MutableView matrix(uint32_t rows, uint32_t cols, float size) {
    std::vector<float> values(size_t{rows} * cols);
    uint32_t state = 12345;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = size * (static_cast<float>(state >> 8) * 0x1p-23f - 1);
    }
    auto buffer = backend.create_buffer(std::max<uint64_t>(values.size() * 4, 16), "bench");
    if (!buffer.ok()) {
      if (status.ok()) status = buffer.error();
      return {};
    }
    if (Status written = backend.write(**buffer, 0, std::as_bytes(std::span(values))); !written.ok() && status.ok()) status = written;
    buffers.push_back(*buffer);
    return {buffers.back().get(), 0, rows, cols, cols};
  }
};

// One model's attention. Calls use caches of their own, as layers do, so that a cache that fits the device's is not met twice.
struct Shape {
  std::string name;
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  uint32_t rows, keys;
  bool values_in_keys = false;
};

using Record = std::function<Status(compute::Batch&)>;

struct Work {
  Memory memory;
  std::vector<Record> calls;
  double operations = 0;  // multiplications and additions of one call
  double bytes = 0;       // keys and values of one call, read once
};

std::unique_ptr<Work> make_attend(compute::Backend& backend, const Shape& shape) {
  auto work = std::make_unique<Work>(Work{{backend, {}, {}}, {}, 0, 0});
  Memory& memory = work->memory;
  compute::AttendArgs args;
  args.query_heads = shape.query_heads;
  args.kv_heads = shape.kv_heads;
  args.key_dim = shape.key_dim;
  args.value_dim = shape.value_dim;
  args.scale = 1 / std::sqrt(static_cast<float>(shape.key_dim));
  args.q = memory.matrix(shape.rows, shape.query_heads * shape.key_dim, 3);
  args.out = memory.matrix(shape.rows, shape.query_heads * shape.value_dim, 0);
  for (uint32_t call = 0; call < kCalls; ++call) {
    args.keys = memory.matrix(shape.keys, shape.kv_heads * shape.key_dim, 1);
    args.values = shape.values_in_keys ? args.keys : memory.matrix(shape.keys, shape.kv_heads * shape.value_dim, 1);
    args.values.cols = shape.kv_heads * shape.value_dim;
    work->calls.push_back([args](compute::Batch& batch) { return batch.attend(args); });
  }
  const double pairs = shape.rows * (shape.keys - (shape.rows - 1) / 2.0) * shape.query_heads;
  work->operations = pairs * 2 * (shape.key_dim + shape.value_dim);
  work->bytes = 4.0 * shape.keys * shape.kv_heads * (shape.key_dim + (shape.values_in_keys ? 0 : shape.value_dim));
  return work;
}

std::unique_ptr<Work> make_select(compute::Backend& backend, uint32_t rows, uint32_t keys) {
  auto work = std::make_unique<Work>(Work{{backend, {}, {}}, {}, 0, 0});
  Memory& memory = work->memory;
  const compute::SelectKeysArgs args{64,
                                     128,
                                     2048,
                                     0.088f,
                                     memory.matrix(rows, 64 * 128, 3),
                                     memory.matrix(keys, 128, 1),
                                     memory.matrix(rows, 64, 1),
                                     memory.matrix(rows, (keys + 31) / 32, 0).buffer};
  work->calls.assign(kCalls, [args](compute::Batch& batch) { return batch.select_keys(args); });
  work->operations = rows * (keys - (rows - 1) / 2.0) * 64 * 2 * 128;
  work->bytes = 4.0 * keys * 128;
  return work;
}

Status run(compute::Backend& backend, const Work& work) {
  CHORUS_TRY(work.memory.status);
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  for (const Record& call : work.calls) CHORUS_TRY(call(*batch));
  CHORUS_TRY(batch->submit());
  float value = 0;
  return backend.read(*work.memory.buffers.front(), 0, std::as_writable_bytes(std::span(&value, 1)));
}

using Make = std::function<std::unique_ptr<Work>(compute::Backend&)>;

void add_benchmark(const std::string& operation, const std::string& variant, const std::string& name, const Make& make) {
  const auto body = [=](benchmark::State& state) {
    auto backend = make_backend(false);
    if (!backend.ok()) return state.SkipWithError(backend.error().to_line().c_str());
    const auto work = make(**backend);
    Status status = (*backend)->force_variant(operation, variant);
    if (status.ok()) status = run(**backend, *work);
    for (auto iteration : state) {
      (void)iteration;
      const auto begin = std::chrono::steady_clock::now();
      if (status.ok()) status = run(**backend, *work);
      if (!status.ok()) return state.SkipWithError(status.error().to_line().c_str());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      state.SetIterationTime(seconds.count() / kCalls);
      state.counters["TFLOP/s"] = work->operations * kCalls / seconds.count() * 1e-12;
      state.counters["GB/s"] = work->bytes * kCalls / seconds.count() * 1e-9;
    }
    // Split by kernel, measured apart because timestamps slow the whole down.
    auto timed = make_backend(true);
    if (!timed.ok()) return;
    const auto timed_work = make(**timed);
    if (!(*timed)->force_variant(operation, variant).ok() || !run(**timed, *timed_work).ok()) return;
    if (!(*timed)->take_kernel_times().ok() || !run(**timed, *timed_work).ok()) return;
    if (auto times = (*timed)->take_kernel_times(); times.ok()) {
      for (const compute::KernelTime& time : *times) state.counters[time.kernel + "_us"] = time.milliseconds * 1000 / kCalls;
    }
  };
  const std::string label = operation + (variant.empty() ? "" : ":" + variant) + "/" + name;
  benchmark::RegisterBenchmark(label.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(5);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Shape> shapes = {{"16_16_128_decode512", 16, 16, 128, 128, 1, 512},
                                     {"16_16_128_decode544", 16, 16, 128, 128, 1, 544},
                                     {"16_16_128_decode2048", 16, 16, 128, 128, 1, 2048},
                                     {"32_4_128_decode512", 32, 4, 128, 128, 1, 512},
                                     {"32_4_128_decode4096", 32, 4, 128, 128, 1, 4096},
                                     {"64_8_64_decode4096", 64, 8, 64, 64, 1, 4096},
                                     {"128_1_576_512_decode4096", 128, 1, 576, 512, 1, 4096, true},
                                     {"16_16_128_chunk128of2048", 16, 16, 128, 128, 128, 2048},
                                     {"16_16_128_chunk512of2048", 16, 16, 128, 128, 512, 2048},
                                     {"32_4_128_chunk512of2048", 32, 4, 128, 128, 512, 2048},
                                     {"16_2_256_chunk512of2048", 16, 2, 256, 256, 512, 2048},
                                     {"16_16_128_T2048", 16, 16, 128, 128, 2048, 2048},
                                     {"32_4_128_T2048", 32, 4, 128, 128, 2048, 2048},
                                     {"64_8_64_T2048", 64, 8, 64, 64, 2048, 2048},
                                     {"128_1_576_512_chunk128of1024", 128, 1, 576, 512, 128, 1024, true}};
  for (const Shape& shape : shapes) {
    for (const std::string variant : {"", "split", "tile"}) {
      if (variant == "tile" && shape.rows == 1) continue;
      add_benchmark("attend", variant, shape.name, [shape](compute::Backend& backend) { return make_attend(backend, shape); });
    }
  }
  for (const uint32_t rows : {1u, 64u}) {
    for (const uint32_t keys : {4096u, 65536u}) {
      add_benchmark("select_keys", "", "64_128_rows" + std::to_string(rows) + "of" + std::to_string(keys),
                    [rows, keys](compute::Backend& backend) { return make_select(backend, rows, keys); });
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
