// Device time per layer of the DeltaNet operations at the shapes of the published models, every variant of gated_delta.
// Several layers are recorded into one batch and the whole is timed, so that the cost of submitting is spread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/webgpu/webgpu_backend.h"

namespace {

using namespace chorus;

constexpr uint32_t kLayers = 20;
constexpr uint32_t kConvWidth = 4;

Result<std::unique_ptr<compute::Backend>> make_backend(bool timestamps) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  options.toggles = gpu::ToggleSet::fast;
  options.timestamps = timestamps;
  return backends::create_webgpu_backend(options);
}

struct Layer {
  compute::GatedDeltaShape shape;
  uint32_t rows = 0, cols = 0, values = 0;
  std::vector<std::shared_ptr<compute::Buffer>> buffers;
  compute::Sequences sequences;
  compute::CausalConvArgs conv;
  compute::GatedDeltaArgs delta;
  compute::GatedRmsNormArgs norm;
};

// Small varied values: denormals and NaN would time something else.
Result<compute::Buffer*> filled(compute::Backend& backend, Layer& layer, uint64_t count, float low, float high) {
  std::vector<float> values(count);
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = low + (high - low) * static_cast<float>(state >> 8) * 0x1p-24f;
  }
  CHORUS_ASSIGN(auto buffer, backend.create_buffer(count * 4, "bench"));
  CHORUS_TRY(backend.write(*buffer, 0, std::as_bytes(std::span(values))));
  layer.buffers.push_back(buffer);
  return layer.buffers.back().get();
}

Result<std::unique_ptr<Layer>> make_layer(compute::Backend& backend, const compute::GatedDeltaShape& shape,
                                          const std::vector<uint32_t>& lengths) {
  auto layer = std::make_unique<Layer>();
  layer->shape = shape;
  layer->values = shape.value_heads * shape.value_dim;
  layer->cols = 2 * shape.key_heads * shape.key_dim + layer->values;
  std::vector<uint32_t> pairs;
  for (const uint32_t length : lengths) {
    layer->sequences.spans.push_back({layer->rows, length});
    pairs.insert(pairs.end(), {layer->rows, length});
    layer->rows += length;
  }
  CHORUS_ASSIGN(auto spans, backend.create_buffer(pairs.size() * 4, "spans"));
  CHORUS_TRY(backend.write(*spans, 0, std::as_bytes(std::span(pairs))));
  layer->buffers.push_back(spans);
  layer->sequences.device = spans.get();
  const uint32_t rows = layer->rows, cols = layer->cols, values = layer->values, heads = shape.value_heads;
  const uint64_t state = uint64_t{heads} * shape.key_dim * shape.value_dim;
  CHORUS_ASSIGN(compute::Buffer * raw, filled(backend, *layer, uint64_t{rows} * cols, -1, 1));
  CHORUS_ASSIGN(compute::Buffer * qkv, filled(backend, *layer, uint64_t{rows} * cols, -1, 1));
  CHORUS_ASSIGN(compute::Buffer * z, filled(backend, *layer, uint64_t{rows} * values, -2, 2));
  CHORUS_ASSIGN(compute::Buffer * b, filled(backend, *layer, uint64_t{rows} * heads, -2, 2));
  CHORUS_ASSIGN(compute::Buffer * a, filled(backend, *layer, uint64_t{rows} * heads, -4, 2));
  CHORUS_ASSIGN(compute::Buffer * weight, filled(backend, *layer, uint64_t{cols} * kConvWidth, -0.5f, 0.5f));
  CHORUS_ASSIGN(compute::Buffer * history, filled(backend, *layer, uint64_t{cols} * 3, -1, 1));
  CHORUS_ASSIGN(compute::Buffer * constants, filled(backend, *layer, heads, -3, 1));
  CHORUS_ASSIGN(compute::Buffer * norm_weight, filled(backend, *layer, shape.value_dim, 0.5f, 1.5f));
  CHORUS_ASSIGN(compute::Buffer * state_in, filled(backend, *layer, state, -0.1f, 0.1f));
  CHORUS_ASSIGN(compute::Buffer * state_out, filled(backend, *layer, state, 0, 0));
  CHORUS_ASSIGN(compute::Buffer * out, filled(backend, *layer, uint64_t{rows} * values, 0, 0));
  const compute::MutableView out_view{out, 0, rows, values, values};
  layer->conv = {{raw, 0, rows, cols, cols}, weight, history, nullptr, &layer->sequences, {qkv, 0, rows, cols, cols}};
  layer->delta.shape = shape;
  layer->delta.qkv = {qkv, 0, rows, cols, cols};
  layer->delta.b = {b, 0, rows, heads, heads};
  layer->delta.a = {a, 0, rows, heads, heads};
  layer->delta.a_log = constants;
  layer->delta.dt_bias = constants;
  layer->delta.state_in = state_in;
  layer->delta.state_out = lengths.size() == 1 ? state_out : nullptr;
  layer->delta.sequences = &layer->sequences;
  layer->delta.out = out_view;
  layer->norm = {out_view, {z, 0, rows, values, values}, norm_weight, shape.value_dim, 1e-6f, out_view};
  return layer;
}

enum class Part { conv, delta, norm };

Status run_layers(compute::Backend& backend, const Layer& layer, Part part) {
  CHORUS_ASSIGN(auto batch, backend.begin_batch());
  for (uint32_t index = 0; index < kLayers; ++index) {
    if (part == Part::conv) CHORUS_TRY(batch->causal_conv(layer.conv));
    if (part == Part::delta) CHORUS_TRY(batch->gated_delta(layer.delta));
    if (part == Part::norm) CHORUS_TRY(batch->gated_rms_norm(layer.norm));
  }
  CHORUS_TRY(batch->submit());
  float value = 0;
  return backend.read(*layer.delta.out.buffer, 0, std::as_writable_bytes(std::span(&value, 1)));
}

struct Setting {
  std::string name;
  compute::GatedDeltaShape shape;
  std::vector<uint32_t> lengths;
};

void time_part(benchmark::State& state, const Setting& setting, Part part, const std::string& variant) {
  auto backend = make_backend(false);
  if (!backend.ok()) return state.SkipWithError(backend.error().to_line().c_str());
  auto layer = make_layer(**backend, setting.shape, setting.lengths);
  if (!layer.ok()) return state.SkipWithError(layer.error().to_line().c_str());
  if (Status forced = (*backend)->force_variant("gated_delta", variant); !forced.ok()) {
    return state.SkipWithError(forced.error().to_line().c_str());
  }
  if (Status warm = run_layers(**backend, **layer, part); !warm.ok()) return state.SkipWithError(warm.error().to_line().c_str());
  for (auto iteration : state) {
    (void)iteration;
    const auto begin = std::chrono::steady_clock::now();
    if (Status status = run_layers(**backend, **layer, part); !status.ok()) return state.SkipWithError(status.error().to_line().c_str());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(seconds.count() / kLayers);
  }
  // Split by kernel, measured apart because timestamps slow the whole down.
  auto timed = make_backend(true);
  if (!timed.ok()) return;
  auto timed_layer = make_layer(**timed, setting.shape, setting.lengths);
  if (!timed_layer.ok() || !(*timed)->force_variant("gated_delta", variant).ok()) return;
  if (!run_layers(**timed, **timed_layer, part).ok() || !(*timed)->take_kernel_times().ok()) return;
  if (!run_layers(**timed, **timed_layer, part).ok()) return;
  if (auto times = (*timed)->take_kernel_times(); times.ok()) {
    for (const compute::KernelTime& time : *times) state.counters[time.kernel + "_us"] = time.milliseconds * 1000 / kLayers;
  }
}

void add(const Setting& setting, Part part, const std::string& variant) {
  const char* names[] = {"causal_conv", "gated_delta", "gated_rms_norm"};
  const std::string label = std::string(names[static_cast<int>(part)]) + (variant.empty() ? "" : ":" + variant) + "/" + setting.name;
  benchmark::RegisterBenchmark(label.c_str(), [=](benchmark::State& state) { time_part(state, setting, part, variant); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(5);
}

}  // namespace

int main(int argc, char** argv) {
  const compute::GatedDeltaShape small{16, 16, 128, 128}, large{16, 32, 128, 128};
  std::vector<Setting> settings;
  for (const uint32_t length : {1u, 8u, 64u, 512u, 2048u, 8192u}) {
    settings.push_back({"16_16_T" + std::to_string(length), small, {length}});
    settings.push_back({"16_32_T" + std::to_string(length), large, {length}});
  }
  settings.push_back({"16_16_5x40", small, std::vector<uint32_t>(5, 40)});
  settings.push_back({"16_32_5x40", large, std::vector<uint32_t>(5, 40)});
  settings.push_back({"16_16_64x40", small, std::vector<uint32_t>(64, 40)});
  std::vector<std::string> variants = {""};
  if (auto backend = make_backend(false); backend.ok()) {
    for (const std::string& variant : (*backend)->variants("gated_delta")) variants.push_back(variant);
  }
  for (const Setting& setting : settings) {
    for (const std::string& variant : variants) add(setting, Part::delta, variant);
    add(setting, Part::conv, "");
    add(setting, Part::norm, "");
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
