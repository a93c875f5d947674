// Speed of `linear` on the processor beside what the machine can do, measured in the same run:
//   peak    one thread (and all) doing fused multiply-adds on registers only
//   read    one thread (and all) summing a buffer larger than the caches
//   linear  the matrices of Qwen3.5 0.8B at 1, 4, 64 and 512 rows; GFLOP/s, share of the peak, GB/s of weights
// Each line is the best of several repetitions. With one thread the clock is the process's processor time, so that other work on the
// machine does not count; with several it is the wall clock.
// usage: cpu_gemm_bench [threads ...]   (default: 1, then all)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/thread_pool.h"
#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/cpu_gemm_bench.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace chorus::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Floating-point operations done; `sink` keeps the compiler from dropping them.
double spin_fma(uint64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  // Ten chains from different values that the compiler cannot know: equal ones would be merged into one.
  const V factor = hn::Set(d, 0.9999f), addend = hn::Set(d, 1e-4f), seed = hn::Set(d, *sink);
  const auto start = [&](float value) { return hn::Add(seed, hn::Set(d, value)); };
  V a0 = start(0.0f), a1 = start(0.1f), a2 = start(0.2f), a3 = start(0.3f), a4 = start(0.4f);
  V a5 = start(0.5f), a6 = start(0.6f), a7 = start(0.7f), a8 = start(0.8f), a9 = start(0.9f);
  for (uint64_t round = 0; round < rounds; ++round) {
    a0 = hn::MulAdd(a0, factor, addend), a1 = hn::MulAdd(a1, factor, addend), a2 = hn::MulAdd(a2, factor, addend);
    a3 = hn::MulAdd(a3, factor, addend), a4 = hn::MulAdd(a4, factor, addend), a5 = hn::MulAdd(a5, factor, addend);
    a6 = hn::MulAdd(a6, factor, addend), a7 = hn::MulAdd(a7, factor, addend), a8 = hn::MulAdd(a8, factor, addend);
    a9 = hn::MulAdd(a9, factor, addend);
  }
  const V sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(hn::Add(a6, a7), hn::Add(a8, a9))));
  *sink += hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * 10 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

float read_all(const float* data, uint64_t count) {
  const hn::ScalableTag<float> d;
  const uint64_t lanes = hn::Lanes(d);
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  for (uint64_t at = 0; at + 4 * lanes <= count; at += 4 * lanes) {
    a0 = hn::Add(a0, hn::Load(d, data + at));
    a1 = hn::Add(a1, hn::Load(d, data + at + lanes));
    a2 = hn::Add(a2, hn::Load(d, data + at + 2 * lanes));
    a3 = hn::Add(a3, hn::Load(d, data + at + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus::bench {
namespace {

HWY_EXPORT(spin_fma);
HWY_EXPORT(read_all);

// A broken benchmark ends at once: this is a program, not a library.
template <typename T>
T require(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().to_line().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void require(Status status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.error().to_line().c_str());
    std::exit(1);
  }
}

double now_seconds(uint32_t threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Work>
double best_seconds(int repetitions, uint32_t threads, const Work& work) {
  double best = 1e30;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const double begin = now_seconds(threads);
    work();
    best = std::min(best, now_seconds(threads) - begin);
  }
  return best;
}

volatile float observed = 0;

double measure_peak(ThreadPool& pool, int64_t target) {
  constexpr uint64_t kRounds = 200'000;
  std::vector<double> operations(pool.threads());
  const double seconds = best_seconds(100, pool.threads(), [&] {
    pool.run(pool.threads(), [&](uint64_t task, uint32_t) {
      float sink = observed;
      operations[task] = CHORUS_SIMD(spin_fma, target)(kRounds, &sink);
      observed = sink;
    });
  });
  double total = 0;
  for (double count : operations) total += count;
  return total / seconds / 1e9;
}

double measure_read(ThreadPool& pool, int64_t target) {
  constexpr uint64_t kCount = 64ull << 20;  // 256 MiB of floats, far over the caches
  std::unique_ptr<float[], decltype(&std::free)> data(static_cast<float*>(std::aligned_alloc(64, kCount * 4)), &std::free);
  if (!data) return 0;
  std::fill_n(data.get(), kCount, 1.0f);
  constexpr uint64_t kTasks = 256;
  const double seconds = best_seconds(5, pool.threads(), [&] {
    pool.run(kTasks, [&](uint64_t task, uint32_t) {
      observed = CHORUS_SIMD(read_all, target)(data.get() + task * (kCount / kTasks), kCount / kTasks);
    });
  });
  return kCount * 4 / seconds / 1e9;
}

struct Matrix {
  const char* name;
  uint32_t rows, cols;
};

void measure_linear(compute::Backend& backend, uint32_t threads, const Matrix& matrix, DType dtype, double peak) {
  auto weight = require(
      backend.create_weight(matrix.name, matrix.rows, matrix.cols, dtype, [](uint32_t first, uint32_t, std::span<float> out) -> Status {
        for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>((i + first) % 31) * 0.01f - 0.15f;
        return {};
      }));
  for (uint32_t rows : {1u, 4u, 64u, 512u}) {
    std::vector<float> values(uint64_t{rows} * matrix.cols);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
    auto x = require(backend.create_buffer(values.size() * 4, "x"));
    require(backend.write(*x, 0, std::as_bytes(std::span(values))));
    auto out = require(backend.create_buffer(uint64_t{rows} * matrix.rows * 4, "out"));
    auto batch = require(backend.begin_batch());
    const compute::LinearArgs args{{x.get(), 0, rows, matrix.cols, matrix.cols},
                                   weight.get(),
                                   nullptr,
                                   {out.get(), 0, rows, matrix.rows, matrix.rows},
                                   compute::LinearStore::overwrite};
    const double seconds = best_seconds(rows >= 512 ? 5 : rows >= 64 ? 15 : 40, threads, [&] { require(batch->linear(args)); });
    const double gflops = 2.0 * rows * matrix.rows * matrix.cols / seconds / 1e9;
    std::printf("  linear %-8s N=%-5u K=%-5u %-4s M=%-4u %9.3f ms %8.1f GFLOP/s %5.1f %% of peak %7.1f GB/s weights\n", matrix.name,
                matrix.rows, matrix.cols, std::string(dtype_name(dtype)).c_str(), rows, seconds * 1e3, gflops, 100 * gflops / peak,
                static_cast<double>(weight->bytes()) / seconds / 1e9);
  }
}

void measure(uint32_t threads) {
  auto pool = require(ThreadPool::create(threads));
  for (const std::string& variant : kernels::simd_targets()) {
    if (variant == "emu128" || variant == "scalar" || variant == "sse4") continue;
    const int64_t target = kernels::simd_target(variant);
    const double peak = measure_peak(*pool, target);
    std::printf("%u thread(s), %s: peak %.1f GFLOP/s, read %.1f GB/s\n", pool->threads(), variant.c_str(), peak,
                measure_read(*pool, target));
    auto backend = backends::create_cpu_backend({.threads = threads});
    require(backend->force_variant("linear", variant));
    for (const Matrix& matrix : {Matrix{"gate_up", 7168, 1024}, Matrix{"down", 1024, 3584}, Matrix{"qkv", 6144, 1024}}) {
      measure_linear(*backend, pool->threads(), matrix, DType::f32, peak);
    }
    measure_linear(*backend, pool->threads(), {"gate_up", 7168, 1024}, DType::bf16, peak);
    measure_linear(*backend, pool->threads(), {"gate_up", 7168, 1024}, DType::f16, peak);
    std::printf("  peak again %.1f GFLOP/s\n", measure_peak(*pool, target));
  }
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  std::vector<uint32_t> counts;
  for (int at = 1; at < argc; ++at) counts.push_back(static_cast<uint32_t>(std::strtoul(argv[at], nullptr, 10)));
  if (counts.empty()) counts = {1, 0};
  for (uint32_t threads : counts) chorus::bench::measure(threads);
  return 0;
}
#endif  // HWY_ONCE
