// Rates of expert_ffn, and of the operations around it, on a WebGPU adapter at the shapes of some mixture-of-experts models, beside the
// adapter's copy rate: few rows (decode) as GB/s of weights, many rows (prefill) as TFLOP/s. With --all every variant.
// usage: expert_ffn_webgpu_bench [--all] [--f32|--bf16] [--rows M]... [--adapter NAME] [--small]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/webgpu/webgpu_backend.h"
#include "base/half.h"

namespace chorus {
namespace {

struct Geometry {
  const char* what;
  uint32_t hidden, inner, experts, top_k;
};
constexpr Geometry kGeometries[] = {
    {"olmoe-1b-7b", 2048, 1024, 64, 8},
    {"qwen3-30b-a3b", 2048, 768, 128, 8},
    {"qwen3.5-35b-a3b", 2048, 512, 256, 8},
    {"mixtral-like", 4096, 14336, 8, 2},
};
constexpr Geometry kSmall[] = {{"small", 512, 256, 16, 4}};  // for software adapters
constexpr double kMillisecondsPerRun = 8;
constexpr uint64_t kBankBytes = uint64_t{1} << 30;  // routes are rotated through at most this much

struct Options {
  bool all_variants = false, small = false;
  DType dtype = DType::f16;
  std::vector<uint32_t> rows;
  std::string adapter;
};

uint32_t next_number(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

class Bench {
 public:
  Bench(compute::Backend& backend, double copy_rate) : backend_(backend), copy_rate_(copy_rate) {}

  Status run_geometry(const Geometry& geometry, const Options& options) {
    CHORUS_TRY(make_bank(geometry, options.dtype));
    for (const uint32_t rows : options.rows) {
      CHORUS_TRY(run_rows(geometry, rows, ""));
      if (options.all_variants) {
        for (const std::string& variant : backend_.variants("expert_ffn")) {
          if (variant.starts_with("row") && rows > 16) continue;
          CHORUS_TRY(run_rows(geometry, rows, variant));
        }
      }
      CHORUS_TRY(run_around(geometry, rows));
    }
    bank_.reset();
    return {};
  }

 private:
  Status make_bank(const Geometry& geometry, DType dtype) {
    const compute::ExpertShape shape{geometry.hidden, geometry.inner, dtype, false};
    const compute::ExpertRecord layout(shape);
    slots_ = static_cast<uint32_t>(std::clamp<uint64_t>(kBankBytes / layout.bytes, geometry.top_k, geometry.experts));
    CHORUS_ASSIGN(bank_, backend_.create_expert_bank(shape, slots_, "bench"));
    std::vector<std::byte> record(layout.bytes);
    uint32_t state = 1;
    for (size_t at = 0; at + dtype_bytes(dtype) <= record.size(); at += dtype_bytes(dtype)) {
      const float value = static_cast<float>(next_number(state)) * 0x1p-28f - 0.03125f;
      if (dtype == DType::f32) {
        *reinterpret_cast<float*>(record.data() + at) = value;
      } else {
        *reinterpret_cast<uint16_t*>(record.data() + at) = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
      }
    }
    for (uint32_t slot = 0; slot < slots_; ++slot) CHORUS_TRY(backend_.write_expert(*bank_, slot, record));
    return {};
  }

  Result<std::shared_ptr<compute::Buffer>> floats(uint64_t count) {
    std::vector<float> values(count);
    uint32_t state = 7;
    for (float& value : values) value = static_cast<float>(next_number(state)) * 0x1p-23f - 1.0f;
    CHORUS_ASSIGN(auto buffer, backend_.create_buffer(count * 4, "bench"));
    CHORUS_TRY(backend_.write(*buffer, 0, std::as_bytes(std::span(values))));
    return buffer;
  }

  // Different experts for the routes of a row, drawn evenly; several sets of routes, so that no cache holds the weights.
  Result<std::shared_ptr<compute::Buffer>> routes(const Geometry& geometry, uint32_t rows, uint32_t set) {
    std::vector<uint32_t> slots;
    uint32_t state = set + 1;
    for (uint32_t row = 0; row < rows; ++row) {
      const size_t first = slots.size();
      while (slots.size() < first + geometry.top_k) {
        const uint32_t slot = (next_number(state) >> 4) % slots_;
        if (std::find(slots.begin() + static_cast<ptrdiff_t>(first), slots.end(), slot) == slots.end()) slots.push_back(slot);
      }
    }
    CHORUS_ASSIGN(auto buffer, backend_.create_buffer(slots.size() * 4, "slots"));
    CHORUS_TRY(backend_.write(*buffer, 0, std::as_bytes(std::span(slots))));
    distinct_ = 0;
    std::sort(slots.begin(), slots.end());
    distinct_ = static_cast<uint32_t>(std::unique(slots.begin(), slots.end()) - slots.begin());
    return buffer;
  }

  // Milliseconds of one call, with each kernel's share.
  template <typename Record>
  Result<double> time(const compute::Buffer& probe_buffer, const Record& record, std::string& shares) {
    uint32_t repeats = 2;
    std::vector<double> times;
    for (int run = 0; run < 4; ++run) {
      CHORUS_TRY(backend_.take_kernel_times());
      CHORUS_ASSIGN(auto batch, backend_.begin_batch());
      for (uint32_t repeat = 0; repeat < repeats; ++repeat) CHORUS_TRY(record(*batch, repeat));
      CHORUS_TRY(batch->submit());
      float probe = 0;
      CHORUS_TRY(backend_.read(probe_buffer, 0, std::as_writable_bytes(std::span(&probe, 1))));
      CHORUS_ASSIGN(const std::vector<compute::KernelTime> kernels, backend_.take_kernel_times());
      double milliseconds = 0;
      shares.clear();
      for (const compute::KernelTime& kernel : kernels) {
        milliseconds += kernel.milliseconds;
        char text[128];
        std::snprintf(text, sizeof(text), " %s %.1f us,", kernel.kernel.c_str(), 1e3 * kernel.milliseconds / repeats);
        shares += text;
      }
      if (run == 0) {
        repeats = static_cast<uint32_t>(std::clamp(kMillisecondsPerRun * repeats / std::max(milliseconds, 1e-3), 2.0, 200.0));
      } else {
        times.push_back(milliseconds / repeats);
      }
    }
    if (!shares.empty()) shares.pop_back();
    std::sort(times.begin(), times.end());
    return times[1];
  }

  Status run_rows(const Geometry& geometry, uint32_t rows, const std::string& variant) {
    constexpr uint32_t kSets = 8;
    CHORUS_ASSIGN(auto x, floats(uint64_t{rows} * geometry.hidden));
    CHORUS_ASSIGN(auto out, backend_.create_buffer(uint64_t{rows} * geometry.top_k * geometry.hidden * 4, "out"));
    std::vector<std::shared_ptr<compute::Buffer>> sets;
    for (uint32_t set = 0; set < kSets; ++set) {
      CHORUS_ASSIGN(auto slots, routes(geometry, rows, set));
      sets.push_back(std::move(slots));
    }
    compute::ExpertFfnArgs args;
    args.bank = bank_.get();
    args.top_k = geometry.top_k;
    args.x = {x.get(), 0, rows, geometry.hidden, geometry.hidden};
    args.out = {out.get(), 0, rows * geometry.top_k, geometry.hidden, geometry.hidden};
    CHORUS_TRY(backend_.force_variant("expert_ffn", variant));
    std::string shares;
    const auto record = [&](compute::Batch& batch, uint32_t repeat) -> Status {
      args.slots = sets[repeat % kSets].get();
      return batch.expert_ffn(args);
    };
    CHORUS_ASSIGN(const double milliseconds, time(*out, record, shares));
    CHORUS_TRY(backend_.force_variant("expert_ffn", ""));
    const double bytes = static_cast<double>(distinct_ * compute::ExpertRecord(bank_->shape()).bytes);
    const double operations = 6.0 * rows * geometry.top_k * geometry.hidden * geometry.inner;
    std::printf("%-16s M %4u  %-12s %9.4f ms  %8.1f GB/s of weights (%3u experts), %5.1f %% of copy  %7.2f TFLOP/s  [%s]\n", geometry.what,
                rows, variant.empty() ? "*" : variant.c_str(), milliseconds, bytes / milliseconds * 1e-6, distinct_,
                100 * bytes / (milliseconds * 1e-3) / copy_rate_, operations / milliseconds * 1e-9, shares.c_str());
    std::fflush(stdout);
    return {};
  }

  // The router before and the combination after.
  Status run_around(const Geometry& geometry, uint32_t rows) {
    const uint32_t routes_count = rows * geometry.top_k;
    CHORUS_ASSIGN(auto logits, floats(uint64_t{rows} * geometry.experts));
    CHORUS_ASSIGN(auto experts, backend_.create_buffer(uint64_t{routes_count} * 4, "experts"));
    CHORUS_ASSIGN(auto weights, backend_.create_buffer(uint64_t{routes_count} * 4, "weights"));
    CHORUS_ASSIGN(auto routed, floats(uint64_t{routes_count} * geometry.hidden));
    CHORUS_ASSIGN(auto out, floats(uint64_t{rows} * geometry.hidden));
    compute::RouterArgs router;
    router.logits = {logits.get(), 0, rows, geometry.experts, geometry.experts};
    router.top_k = geometry.top_k;
    router.renormalise = true;
    router.experts = experts.get();
    router.weights = weights.get();
    compute::CombineRoutesArgs combine;
    combine.top_k = geometry.top_k;
    combine.routed = {routed.get(), 0, routes_count, geometry.hidden, geometry.hidden};
    combine.weights = weights.get();
    combine.out = {out.get(), 0, rows, geometry.hidden, geometry.hidden};
    std::string shares;
    const auto record = [&](compute::Batch& batch, uint32_t) -> Status {
      CHORUS_TRY(batch.router(router));
      return batch.combine_routes(combine);
    };
    CHORUS_TRY(time(*out, record, shares));
    std::printf("%-16s M %4u  around it: [%s]\n", geometry.what, rows, shares.c_str());
    std::fflush(stdout);
    return {};
  }

  compute::Backend& backend_;
  double copy_rate_;
  uint32_t slots_ = 0, distinct_ = 0;
  std::shared_ptr<compute::ExpertBank> bank_;
};

Options parse(int count, char** words) {
  Options options;
  for (int index = 1; index < count; ++index) {
    const std::string_view word = words[index];
    if (word == "--all") options.all_variants = true;
    if (word == "--small") options.small = true;
    if (word == "--f32") options.dtype = DType::f32;
    if (word == "--bf16") options.dtype = DType::bf16;
    if (word == "--rows" && index + 1 < count) options.rows.push_back(static_cast<uint32_t>(std::strtoul(words[++index], nullptr, 10)));
    if (word == "--adapter" && index + 1 < count) options.adapter = words[++index];
  }
  if (options.rows.empty()) options.rows = {1, 2, 4, 8, 16, 64, 512};
  return options;
}

Status run(const Options& options) {
  gpu::DeviceOptions device;
  device.adapter = options.adapter;
  device.toggles = gpu::ToggleSet::fast;
  device.timestamps = true;
  device.allow_software = true;
  CHORUS_ASSIGN(auto backend, backends::create_webgpu_backend(device));
  CHORUS_ASSIGN(const compute::DevicePeak peak, backend->measure_peak());
  std::printf("%s, %s, weights %s, copy %.0f GB/s\n", backend->info().device.c_str(), backend->info().driver.c_str(),
              std::string(dtype_name(options.dtype)).c_str(), peak.bytes_per_second * 1e-9);
  Bench bench(*backend, peak.bytes_per_second);
  const std::span<const Geometry> geometries = options.small ? std::span<const Geometry>(kSmall) : std::span<const Geometry>(kGeometries);
  for (const Geometry& geometry : geometries) CHORUS_TRY(bench.run_geometry(geometry, options));
  return {};
}

}  // namespace
}  // namespace chorus

int main(int count, char** words) {
  const chorus::Status status = chorus::run(chorus::parse(count, words));
  if (!status.ok()) std::fprintf(stderr, "expert_ffn_webgpu_bench: %s\n", status.error().to_line().c_str());
  return status.ok() ? 0 : 1;
}
