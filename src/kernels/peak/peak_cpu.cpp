// Compiled once for every instruction set that Highway knows; the best one of the machine is chosen at run time.
#include "kernels/peak/peak_cpu.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak/peak_cpu.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace chorus::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 12 independent chains hide the latency of a multiply-add. Returns the operations carried out; adds the result to `sink`.
double multiply_adds(uint64_t iterations, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), addend = hn::Set(d, 0.001f);
  auto a = hn::Iota(d, 0.0f), b = hn::Iota(d, 1.0f), c = hn::Iota(d, 2.0f), e = hn::Iota(d, 3.0f), f = hn::Iota(d, 4.0f),
       g = hn::Iota(d, 5.0f);
  auto h = hn::Iota(d, 6.0f), i = hn::Iota(d, 7.0f), j = hn::Iota(d, 8.0f), k = hn::Iota(d, 9.0f), l = hn::Iota(d, 10.0f),
       m = hn::Iota(d, 11.0f);
  for (uint64_t n = 0; n < iterations; ++n) {
    a = hn::MulAdd(a, factor, addend);
    b = hn::MulAdd(b, factor, addend);
    c = hn::MulAdd(c, factor, addend);
    e = hn::MulAdd(e, factor, addend);
    f = hn::MulAdd(f, factor, addend);
    g = hn::MulAdd(g, factor, addend);
    h = hn::MulAdd(h, factor, addend);
    i = hn::MulAdd(i, factor, addend);
    j = hn::MulAdd(j, factor, addend);
    k = hn::MulAdd(k, factor, addend);
    l = hn::MulAdd(l, factor, addend);
    m = hn::MulAdd(m, factor, addend);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i)));
  *sink += hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, hn::Add(hn::Add(j, k), hn::Add(l, m)))));
  return 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(iterations);
}

// count is a multiple of 4 vectors of any target (64 floats each).
void sum_memory(const float* values, size_t count, float* sink) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  for (size_t n = 0; n < count; n += 4 * lanes) {
    a = hn::Add(a, hn::Load(d, values + n));
    b = hn::Add(b, hn::Load(d, values + n + lanes));
    c = hn::Add(c, hn::Load(d, values + n + 2 * lanes));
    e = hn::Add(e, hn::Load(d, values + n + 3 * lanes));
  }
  *sink += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::kernels {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(sum_memory);

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The results land here, so that no loop can be left out.
std::atomic<float> result_sink{0};

}  // namespace

Result<compute::DevicePeak> measure_cpu_peak(ThreadPool& pool) {
  compute::DevicePeak peak;
  constexpr uint64_t kIterations = 4'000'000;  // some tens of milliseconds
  std::vector<double> operations(pool.threads());
  for (int round = 0; round < 3; ++round) {
    const auto start = Clock::now();
    pool.run(pool.threads(), [&](uint64_t task, uint32_t) {
      float sink = 0;
      operations[task] = HWY_DYNAMIC_DISPATCH(multiply_adds)(kIterations, &sink);
      result_sink.store(sink, std::memory_order_relaxed);
    });
    const double seconds = seconds_since(start);
    double total = 0;
    for (double value : operations) total += value;
    peak.flops_per_second = std::max(peak.flops_per_second, total / seconds);
  }
  constexpr size_t kFloatsPerTask = 1u << 20, kTasks = 64;  // 256 MiB: no cache holds it
  const auto memory = hwy::AllocateAligned<float>(kFloatsPerTask * kTasks);
  if (!memory) return make_error(ErrorCode::out_of_memory, "peak measurement: 256 MiB are not to be had");
  std::fill_n(memory.get(), kFloatsPerTask * kTasks, 1.0f);
  for (int round = 0; round < 3; ++round) {
    const auto start = Clock::now();
    pool.run(kTasks, [&](uint64_t task, uint32_t) {
      float sink = 0;
      HWY_DYNAMIC_DISPATCH(sum_memory)(memory.get() + task * kFloatsPerTask, kFloatsPerTask, &sink);
      result_sink.store(sink, std::memory_order_relaxed);
    });
    peak.bytes_per_second = std::max(peak.bytes_per_second, 4.0 * kFloatsPerTask * kTasks / seconds_since(start));
  }
  return peak;
}

}  // namespace chorus::kernels
#endif  // HWY_ONCE
