// Device time of attention at the shapes of the published models, every variant, and of the small operations around it.
// Several layers are recorded into one batch and the whole is timed, so that the cost of submitting is spread.
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

constexpr uint32_t kLayers = 10;

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
    return {add(std::as_bytes(std::span(values))), 0, rows, cols, cols};
  }
  compute::Buffer* add(std::span<const std::byte> bytes) {
    auto buffer = backend.create_buffer(std::max<uint64_t>(bytes.size(), 16), "bench");
    if (!buffer.ok()) {
      if (status.ok()) status = buffer.error();
      return nullptr;
    }
    if (Status written = backend.write(**buffer, 0, bytes); !written.ok() && status.ok()) status = written;
    buffers.push_back(*buffer);
    return buffers.back().get();
  }
};

struct Shape {
  std::string name;
  compute::AttentionShape heads;
  uint32_t prefix;
  std::vector<uint32_t> lengths;
};

// Multiplications and additions of the (row, visible key) pairs.
double floating_point_operations(const Shape& shape) {
  double pairs = 0;
  for (const double length : shape.lengths) pairs += length * shape.prefix + length * (length + 1) / 2;
  return pairs * shape.heads.query_heads * shape.heads.head_dim * 4;
}

using Record = std::function<Status(compute::Batch&)>;

struct Layer {
  Memory memory;
  compute::Sequences sequences;
  Record record;
};

std::unique_ptr<Layer> make_attention(compute::Backend& backend, const Shape& shape) {
  auto layer = std::make_unique<Layer>(Layer{{backend, {}, {}}, {}, {}});
  uint32_t rows = 0;
  std::vector<uint32_t> pairs;
  for (const uint32_t length : shape.lengths) {
    layer->sequences.spans.push_back({rows, length});
    pairs.insert(pairs.end(), {rows, length});
    rows += length;
  }
  Memory& memory = layer->memory;
  layer->sequences.device = memory.add(std::as_bytes(std::span(pairs)));
  const uint32_t q_cols = shape.heads.query_heads * shape.heads.head_dim, kv_cols = shape.heads.kv_heads * shape.heads.head_dim;
  const compute::AttentionArgs args{shape.heads,
                                    1 / std::sqrt(static_cast<float>(shape.heads.head_dim)),
                                    memory.matrix(rows, q_cols, 3),
                                    memory.matrix(rows, 2 * q_cols, 3),
                                    memory.matrix(shape.prefix, kv_cols, 1),
                                    memory.matrix(shape.prefix, kv_cols, 1),
                                    memory.matrix(rows, kv_cols, 1),
                                    memory.matrix(rows, kv_cols, 1),
                                    &layer->sequences,
                                    memory.matrix(rows, q_cols, 0)};
  layer->record = [args](compute::Batch& batch) { return batch.attention(args); };
  return layer;
}

std::unique_ptr<Layer> make_small(compute::Backend& backend, const std::string& operation, uint32_t rows) {
  auto layer = std::make_unique<Layer>(Layer{{backend, {}, {}}, {}, {}});
  Memory& memory = layer->memory;
  if (operation == "rms_norm") {
    const compute::RmsNormArgs args{memory.matrix(rows, 1024, 1), memory.matrix(1, 1024, 1).buffer, 1e-6f, compute::NormWeight::one_plus,
                                    memory.matrix(rows, 1024, 0)};
    layer->record = [args](compute::Batch& batch) { return batch.rms_norm(args); };
  } else if (operation == "swiglu") {
    const compute::SwigluArgs args{memory.matrix(rows, 7168, 2), memory.matrix(rows, 3584, 0)};
    layer->record = [args](compute::Batch& batch) { return batch.swiglu(args); };
  } else {
    compute::QkNormRopeArgs args;
    args.shape = {8, 2, 256};
    args.rotary_dim = 64;
    args.q_gate = memory.matrix(rows, 4096, 1);
    args.kv = memory.matrix(rows, 1024, 1);
    args.q_weight = memory.matrix(1, 256, 1).buffer;
    args.k_weight = memory.matrix(1, 256, 1).buffer;
    args.cosine = memory.matrix(rows, 32, 1);
    args.sine = memory.matrix(rows, 32, 1);
    args.q_out = memory.matrix(rows, 2048, 0);
    args.k_out = memory.matrix(rows, 512, 0);
    args.v_out = memory.matrix(rows, 512, 0);
    layer->record = [args](compute::Batch& batch) { return batch.qk_norm_rope(args); };
  }
  return layer;
}

Status run_layers(compute::Backend& backend, const Layer& layer) {
  CHORUS_TRY(layer.memory.status);
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  for (uint32_t index = 0; index < kLayers; ++index) CHORUS_TRY(layer.record(*batch));
  CHORUS_TRY(batch->submit());
  float value = 0;
  return backend.read(*layer.memory.buffers.back(), 0, std::as_writable_bytes(std::span(&value, 1)));
}

using MakeLayer = std::function<std::unique_ptr<Layer>(compute::Backend&)>;

void add_benchmark(const std::string& operation, const std::string& variant, const std::string& name, double operations,
                   const MakeLayer& make) {
  const auto body = [=](benchmark::State& state) {
    auto backend = make_backend(false);
    if (!backend.ok()) return state.SkipWithError(backend.error().to_line().c_str());
    const auto layer = make(**backend);
    Status status = (*backend)->force_variant(operation, variant);
    if (status.ok()) status = run_layers(**backend, *layer);
    for (auto iteration : state) {
      (void)iteration;
      const auto begin = std::chrono::steady_clock::now();
      if (status.ok()) status = run_layers(**backend, *layer);
      if (!status.ok()) return state.SkipWithError(status.error().to_line().c_str());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      state.SetIterationTime(seconds.count() / kLayers);
      if (operations > 0) state.counters["TFLOP/s"] = operations * kLayers / seconds.count() * 1e-12;
    }
    // Split by kernel, measured apart because timestamps slow the whole down.
    auto timed = make_backend(true);
    if (!timed.ok()) return;
    const auto timed_layer = make(**timed);
    if (!(*timed)->force_variant(operation, variant).ok() || !run_layers(**timed, *timed_layer).ok()) return;
    if (!(*timed)->take_kernel_times().ok() || !run_layers(**timed, *timed_layer).ok()) return;
    if (auto times = (*timed)->take_kernel_times(); times.ok()) {
      for (const compute::KernelTime& time : *times) state.counters[time.kernel + "_us"] = time.milliseconds * 1000 / kLayers;
    }
  };
  const std::string label = operation + (variant.empty() ? "" : ":" + variant) + "/" + name;
  benchmark::RegisterBenchmark(label.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(5);
}

}  // namespace

int main(int argc, char** argv) {
  const compute::AttentionShape small{8, 2, 256}, large{16, 4, 256};  // 0.8B; 4B and 9B
  const std::vector<Shape> shapes = {{"8_2_T512", small, 0, {512}},
                                     {"8_2_T2048", small, 0, {2048}},
                                     {"8_2_T8192", small, 0, {8192}},
                                     {"16_4_T2048", large, 0, {2048}},
                                     {"8_2_P2048_5x50", small, 2048, std::vector<uint32_t>(5, 50)},
                                     {"8_2_P2048_64x50", small, 2048, std::vector<uint32_t>(64, 50)},
                                     {"16_4_P2048_5x50", large, 2048, std::vector<uint32_t>(5, 50)},
                                     {"8_2_P8192_5x50", small, 8192, std::vector<uint32_t>(5, 50)},
                                     {"8_2_P2048_1x1", small, 2048, {1}}};
  std::vector<std::string> variants = {""};
  if (auto backend = make_backend(false); backend.ok()) {
    for (const std::string& variant : (*backend)->variants("attention")) variants.push_back(variant);
  }
  for (const Shape& shape : shapes) {
    for (const std::string& variant : variants) {
      add_benchmark("attention", variant, shape.name, floating_point_operations(shape),
                    [shape](compute::Backend& backend) { return make_attention(backend, shape); });
    }
  }
  for (const std::string operation : {"rms_norm", "swiglu", "qk_norm_rope"}) {
    for (const uint32_t rows : {64u, 2048u}) {
      add_benchmark(operation, "", "T" + std::to_string(rows), 0,
                    [operation, rows](compute::Backend& backend) { return make_small(backend, operation, rows); });
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
