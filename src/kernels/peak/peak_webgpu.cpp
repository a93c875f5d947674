#include "kernels/peak/peak_webgpu.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "kernels/common/webgpu_context.h"

namespace chorus::kernels {

namespace {

struct PeakParams {
  uint32_t iterations;
  float factor;
  float addend;
  uint32_t pad;
};

struct CopyParams {
  uint32_t vectors;
  uint32_t stride;
  uint32_t pad[2];
};

constexpr uint32_t kInvocations = 256;
constexpr double kOperationsPerIteration = 64;  // per invocation: 8 accumulators of 4 lanes, multiply and add
constexpr double kLongEnoughSeconds = 0.05;     // a thousand times a submit and wait

// Doubles `amount` until one run takes long enough, then takes the best rate of three more. The first run compiles and wakes the device
// and does not count.
Result<double> best_rate(uint32_t amount, uint32_t amount_max, double units_per_amount,
                         const std::function<Result<double>(uint32_t)>& seconds_for) {
  CHORUS_TRY(seconds_for(amount));
  double seconds = 0;
  for (;; amount *= 2) {
    CHORUS_ASSIGN(seconds, seconds_for(amount));
    if (seconds >= kLongEnoughSeconds || amount >= amount_max) break;
  }
  for (int i = 0; i < 3; ++i) {
    CHORUS_ASSIGN(const double again, seconds_for(amount));
    seconds = std::min(seconds, again);
  }
  return units_per_amount * amount / seconds;
}

Result<double> timed(gpu::Device& device, const std::function<Status()>& record) {
  CHORUS_TRY(device.wait_idle());
  const auto start = std::chrono::steady_clock::now();
  CHORUS_TRY(record());
  CHORUS_TRY(device.submit());
  CHORUS_TRY(device.wait_idle());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<double> measure_flops(gpu::Device& device) {
  const gpu::ShaderSource* shader = find_shader("peak", "f32");
  CHORUS_CHECK(shader != nullptr);
  const uint32_t groups = device.capabilities().software ? 64 : 16384;
  CHORUS_ASSIGN(const auto out, device.create_storage(uint64_t{groups} * kInvocations * 4, "peak"));
  return best_rate(64, 1u << 24, kOperationsPerIteration * groups * kInvocations, [&](uint32_t iterations) {
    return timed(device, [&]() -> Status {
      const PeakParams params{iterations, 0.999f, 0.001f, 0};
      return device.dispatch({shader, {{out, gpu::Access::read_write, 0, 0}}, as_params(params), {groups, 1, 1}});
    });
  });
}

Result<double> measure_bytes(gpu::Device& device) {
  const gpu::ShaderSource* shader = find_shader("peak_copy", "vec4");
  CHORUS_CHECK(shader != nullptr);
  const gpu::Capabilities& capabilities = device.capabilities();
  const uint64_t wanted = capabilities.software ? 64ull << 20 : 1ull << 30;  // far above any cache
  const uint64_t bytes = std::min({wanted, capabilities.buffer_bytes_max, capabilities.storage_binding_bytes_max}) & ~15ull;
  CHORUS_ASSIGN(const auto source, device.create_storage(bytes, "peak source"));
  CHORUS_ASSIGN(const auto target, device.create_storage(bytes, "peak target"));
  const uint32_t groups = capabilities.software ? 64 : 16384;
  const CopyParams params{static_cast<uint32_t>(bytes / 16), groups * kInvocations, {0, 0}};
  return best_rate(1, 1024, 2.0 * static_cast<double>(bytes), [&](uint32_t copies) {
    return timed(device, [&]() -> Status {
      for (uint32_t i = 0; i < copies; ++i) {
        CHORUS_TRY(device.dispatch(
            {shader, {{source, gpu::Access::read, 0, 0}, {target, gpu::Access::read_write, 0, 0}}, as_params(params), {groups, 1, 1}}));
      }
      return {};
    });
  });
}

}  // namespace

Result<compute::DevicePeak> measure_webgpu_peak(gpu::Device& device) {
  CHORUS_TRY(device.submit());
  compute::DevicePeak peak;
  CHORUS_ASSIGN(peak.flops_per_second, measure_flops(device));
  CHORUS_ASSIGN(peak.bytes_per_second, measure_bytes(device));
  return peak;
}

}  // namespace chorus::kernels
