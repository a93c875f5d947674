// Microseconds of the small operations of a language model's step on a WebGPU adapter: the wall clock of a batch of calls that wait for
// each other, as in a model. usage: small_operations_webgpu_bench [--rows M]... [--adapter NAME]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/webgpu/webgpu_backend.h"

namespace chorus {
namespace {

constexpr uint32_t kHidden = 2048;
constexpr uint32_t kVocabulary = 248320;
constexpr uint32_t kHeads = 128, kLatent = 512, kHeadDim = 128;  // of a DeepSeek-V3 layer
constexpr uint32_t kCalls = 300;

class Bench {
 public:
  explicit Bench(compute::Backend& backend) : backend_(backend) {}

  Status run(uint32_t rows) {
    CHORUS_ASSIGN(compute::Buffer * weight, buffer(kHidden));
    CHORUS_ASSIGN(const compute::MutableView hidden, matrix(rows, kHidden));
    CHORUS_TRY(measure("rms_norm in place", rows, [&](compute::Batch& batch) {
      return batch.rms_norm({hidden, weight, 1e-6f, compute::NormWeight::plain, hidden});
    }));
    CHORUS_TRY(measure("layer_norm in place", rows, [&](compute::Batch& batch) {
      return batch.layer_norm({hidden, weight, weight, 1e-6f, hidden});
    }));
    CHORUS_ASSIGN(const compute::MutableView angles, matrix(rows, 64));
    CHORUS_TRY(measure("rope in place", rows, [&](compute::Batch& batch) {
      return batch.rope({16, 128, 0, 128, compute::RopeForm::halves, hidden, angles, angles, hidden});
    }));
    CHORUS_TRY(run_head_linear(rows, kLatent, kHeadDim));
    CHORUS_TRY(run_head_linear(rows, kHeadDim, kLatent));
    return run_choices(rows);
  }

 private:
  Result<compute::Buffer*> buffer(uint64_t elements) {
    CHORUS_ASSIGN(auto made, backend_.create_buffer(elements * 4, "bench"));
    kept_.push_back(std::move(made));
    return kept_.back().get();
  }
  Result<compute::MutableView> matrix(uint32_t rows, uint32_t cols) {
    CHORUS_ASSIGN(compute::Buffer * made, buffer(uint64_t{rows} * cols));
    return compute::MutableView{made, 0, rows, cols, cols};
  }

  Status run_head_linear(uint32_t rows, uint32_t cols, uint32_t depth) {
    CHORUS_ASSIGN(auto weight,
                  backend_.create_weight("bench", kHeads * cols, depth, DType::f16, [](uint32_t, uint32_t, std::span<float> out) {
                    std::fill(out.begin(), out.end(), 0.5f);
                    return Status{};
                  }));
    CHORUS_ASSIGN(const compute::MutableView x, matrix(rows, kHeads * depth));
    CHORUS_ASSIGN(const compute::MutableView out, matrix(rows, kHeads * cols));
    const std::string name =
        "head_linear " + std::to_string(kHeads) + " x " + std::to_string(cols) + " x " + std::to_string(depth) + " f16";
    return measure(name, rows, [&](compute::Batch& batch) { return batch.head_linear({kHeads, depth, x, weight.get(), out}); });
  }

  Status run_choices(uint32_t rows) {
    CHORUS_ASSIGN(const compute::MutableView logits, matrix(rows, kVocabulary));
    std::vector<float> values(uint64_t{rows} * kVocabulary);
    uint32_t state = 7;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-20f - 8;
    }
    CHORUS_TRY(backend_.write(*logits.buffer, 0, std::as_bytes(std::span(values))));
    std::vector<compute::SampleRow> requests(rows);
    for (uint32_t row = 0; row < rows; ++row) requests[row] = {0.7f, 40, 0.95f, 0.01f, row, 0, row, 0};
    CHORUS_ASSIGN(compute::Buffer * sampling, buffer(uint64_t{rows} * 8));
    CHORUS_ASSIGN(compute::Buffer * indices, buffer(rows));
    CHORUS_TRY(backend_.write(*sampling, 0, std::as_bytes(std::span(requests))));
    const std::string width = " of " + std::to_string(kVocabulary);
    CHORUS_TRY(measure("argmax" + width, rows, [&](compute::Batch& batch) { return batch.argmax({logits, indices}); }));
    return measure("sample" + width, rows, [&](compute::Batch& batch) { return batch.sample({logits, sampling, indices}); });
  }

  Status measure(const std::string& what, uint32_t rows, const std::function<Status(compute::Batch&)>& call) {
    std::vector<double> times;
    for (int run = 0; run < 6; ++run) {
      const uint32_t calls = run == 0 ? 1 : backend_.info().software ? 3 : kCalls;
      const auto begin = std::chrono::steady_clock::now();
      CHORUS_ASSIGN(auto batch, backend_.begin_batch());
      for (uint32_t i = 0; i < calls; ++i) CHORUS_TRY(call(*batch));
      CHORUS_TRY(batch->submit());
      uint32_t probe = 0;
      CHORUS_TRY(backend_.read(*kept_.back(), 0, std::as_writable_bytes(std::span(&probe, 1))));
      const double microseconds = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      if (run > 0) times.push_back(microseconds / calls);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-32s %5u rows  %9.2f us\n", what.c_str(), rows, times[times.size() / 2]);
    std::fflush(stdout);
    return {};
  }

  compute::Backend& backend_;
  std::vector<std::shared_ptr<compute::Buffer>> kept_;
};

Status run(int count, char** words) {
  gpu::DeviceOptions device;
  device.toggles = gpu::ToggleSet::fast;
  device.allow_software = true;
  std::vector<uint32_t> rows;
  for (int index = 1; index + 1 < count; ++index) {
    const std::string_view word = words[index];
    if (word == "--rows") rows.push_back(std::max(1u, static_cast<uint32_t>(std::strtoul(words[index + 1], nullptr, 10))));
    if (word == "--adapter") device.adapter = words[index + 1];
  }
  if (rows.empty()) rows = {1, 8, 64};
  CHORUS_ASSIGN(auto backend, backends::create_webgpu_backend(device));
  std::printf("%s, %s\n", backend->info().device.c_str(), backend->info().driver.c_str());
  for (const uint32_t each : rows) CHORUS_TRY(Bench(*backend).run(each));
  return {};
}

}  // namespace
}  // namespace chorus

int main(int count, char** words) {
  const chorus::Status status = chorus::run(count, words);
  if (!status.ok()) std::fprintf(stderr, "small_operations_webgpu_bench: %s\n", status.error().to_line().c_str());
  return status.ok() ? 0 : 1;
}
