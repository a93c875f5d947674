// How fast one token's weights are read on the processor, beside a loop that does nothing but read, measured in turns in the same run:
//   read        summing a buffer larger than the caches
//   expert_ffn  one row through top_k experts that the caches do not hold; then many rows, as GFLOP/s
//   linear      one row through matrices that the caches do not hold
// Rates of reading are medians of many turns, GFLOP/s the best of several repetitions. With one thread the clock is the process's processor
// time, so that other work on the machine counts less; with several it is the wall clock. usage: cpu_experts_bench [threads ...] (default:
// 1, then all)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "backends/cpu/cpu_backend.h"
#include "base/half.h"
#include "base/thread_pool.h"
#include "kernels/common/cpu_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/cpu_experts_bench.cpp"
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
void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error().to_line().c_str());
  std::exit(1);
}
template <typename T>
T require(Result<T> result) {
  if (!result.ok()) require(Status(result.error()));
  return std::move(result).value();
}

double now_seconds(uint32_t threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

volatile float observed = 0;

// The plain loop over 256 MiB, in huge pages where the system has them, as the backend's own memory is.
class ReadLoop {
 public:
  explicit ReadLoop(uint32_t threads)
      : pool_(require(ThreadPool::create(threads))),
        data_(static_cast<float*>(std::aligned_alloc(kAlignment, kCount * sizeof(float))), &std::free) {
#if defined(__linux__)
    madvise(data_.get(), kCount * sizeof(float), MADV_HUGEPAGE);
#endif
    std::fill_n(data_.get(), kCount, 1.0f);
  }
  uint32_t threads() const { return pool_->threads(); }
  double bytes() const { return static_cast<double>(kCount * sizeof(float)); }
  void run() {
    const int64_t target = kernels::simd_target("");
    pool_->run(kTasks, [&](uint64_t task, uint32_t) {
      observed = CHORUS_SIMD(read_all, target)(data_.get() + task * (kCount / kTasks), kCount / kTasks);
    });
  }

 private:
  static constexpr uint64_t kCount = 64ull << 20, kTasks = 256, kAlignment = 2ull << 20;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<float[], decltype(&std::free)> data_;
};

// What every thread reaches on multiply-adds in registers, together.
double measure_peak(ReadLoop& loop) {
  auto pool = require(ThreadPool::create(loop.threads()));
  const int64_t target = kernels::simd_target("");
  std::vector<double> operations(pool->threads());
  double best = 0;
  for (int repetition = 0; repetition < 40; ++repetition) {
    const double begin = now_seconds(loop.threads());
    pool->run(pool->threads(), [&](uint64_t task, uint32_t) {
      float sink = observed;
      operations[task] = CHORUS_SIMD(spin_fma, target)(200'000, &sink);
      observed = sink;
    });
    double total = 0;
    for (const double count : operations) total += count;
    best = std::max(best, total / (now_seconds(loop.threads()) - begin));
  }
  return best;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs `work` in turns with the read loop and prints the medians of both rates and of their ratio, with the quarters around it. The ratio
// is of neighbours in time: two threads may share a core in one moment and have one each in the next, which doubles both rates.
template <typename Work>
void measure_reading(ReadLoop& loop, const std::string& name, double bytes, const Work& work) {
  constexpr int kTurns = 41;
  std::vector<double> seconds, rates, read_rates, ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double begin = now_seconds(loop.threads());
    loop.run();
    const double middle = now_seconds(loop.threads());
    work(turn);
    const double end = now_seconds(loop.threads());
    seconds.push_back(end - middle);
    rates.push_back(bytes / (end - middle) / 1e9);
    read_rates.push_back(loop.bytes() / (middle - begin) / 1e9);
    ratios.push_back(100 * rates.back() / read_rates.back());
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("  %-42s %8.3f ms  %6.2f GB/s of weights, read loop %6.2f: %5.1f %% (%.1f to %.1f)\n", name.c_str(), median_of(seconds) * 1e3,
              median_of(rates), median_of(read_rates), ratios[kTurns / 2], ratios[kTurns / 4], ratios[kTurns * 3 / 4]);
  std::fflush(stdout);
}

struct Geometry {
  const char* name;
  uint32_t hidden, inner, top_k, slots;
  DType dtype;
};

class Experts {
 public:
  Experts(compute::Backend& backend, const Geometry& geometry)
      : backend_(backend),
        geometry_(geometry),
        shape_{geometry.hidden, geometry.inner, geometry.dtype, false},
        bank_(require(backend.create_expert_bank(shape_, geometry.slots, "bench"))) {
    for (uint32_t slot = 0; slot < geometry.slots; ++slot) fill(slot);
  }

  double bytes_per_row() const { return static_cast<double>(geometry_.top_k * compute::ExpertRecord(shape_).bytes); }
  double operations_per_row() const { return 6.0 * geometry_.top_k * geometry_.hidden * geometry_.inner; }

  struct Call {
    std::shared_ptr<compute::Buffer> x, slots, out;
    compute::ExpertFfnArgs args;
  };
  // Row r of a call takes the experts from r * top_k + turn * top_k on.
  Call prepare(uint32_t rows, uint32_t turn) {
    Call call;
    std::vector<float> x(uint64_t{rows} * geometry_.hidden);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.01f - 0.08f;
    std::vector<uint32_t> slots;
    for (uint32_t route = 0; route < rows * geometry_.top_k; ++route) slots.push_back((turn * geometry_.top_k + route) % geometry_.slots);
    call.x = require(backend_.create_buffer(x.size() * 4, "x"));
    call.slots = require(backend_.create_buffer(slots.size() * 4, "slots"));
    call.out = require(backend_.create_buffer(x.size() * 4 * geometry_.top_k, "out"));
    require(backend_.write(*call.x, 0, std::as_bytes(std::span(x))));
    require(backend_.write(*call.slots, 0, std::as_bytes(std::span(slots))));
    call.args.bank = bank_.get();
    call.args.top_k = geometry_.top_k;
    call.args.x = {call.x.get(), 0, rows, geometry_.hidden, geometry_.hidden};
    call.args.slots = call.slots.get();
    call.args.out = {call.out.get(), 0, rows * geometry_.top_k, geometry_.hidden, geometry_.hidden};
    return call;
  }

 private:
  void fill(uint32_t slot) {
    std::byte* record = backend_.expert_memory(*bank_, slot);
    const uint64_t elements = compute::ExpertRecord(shape_).bytes / dtype_bytes(shape_.dtype);
    for (uint64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>((i + slot) % 31) * 0.01f - 0.15f;
      if (shape_.dtype == DType::f32) {
        reinterpret_cast<float*>(record)[i] = value;
      } else {
        reinterpret_cast<uint16_t*>(record)[i] = shape_.dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
      }
    }
  }

  compute::Backend& backend_;
  Geometry geometry_;
  compute::ExpertShape shape_;
  std::shared_ptr<compute::ExpertBank> bank_;
};

void measure_experts(ReadLoop& loop, compute::Backend& backend, const Geometry& geometry, double peak) {
  Experts experts(backend, geometry);
  auto batch = require(backend.begin_batch());
  std::vector<Experts::Call> calls;
  for (uint32_t turn = 0; turn < geometry.slots / geometry.top_k; ++turn) calls.push_back(experts.prepare(1, turn));
  const std::string name = std::string("expert_ffn ") + geometry.name + " " + std::string(dtype_name(geometry.dtype));
  measure_reading(loop, name + ", 1 row", experts.bytes_per_row(),
                  [&](int turn) { require(batch->expert_ffn(calls[static_cast<size_t>(turn) % calls.size()].args)); });
  for (const uint32_t rows : {16u, 256u}) {
    const Experts::Call call = experts.prepare(rows, 0);
    double best = 1e30;
    for (int turn = 0; turn < 3; ++turn) {
      const double begin = now_seconds(loop.threads());
      require(batch->expert_ffn(call.args));
      best = std::min(best, now_seconds(loop.threads()) - begin);
    }
    const double rate = rows * experts.operations_per_row() / best;
    std::printf("  %-42s %8.3f ms  %6.1f GFLOP/s, %5.1f %% of the FMA peak\n", (name + ", " + std::to_string(rows) + " rows").c_str(),
                best * 1e3, rate / 1e9, 100 * rate / peak);
  }
}

void measure_linear(ReadLoop& loop, compute::Backend& backend, uint32_t rows, uint32_t cols, DType dtype) {
  std::vector<std::shared_ptr<compute::Weight>> weights;
  for (int index = 0; index < 3; ++index) {
    weights.push_back(
        require(backend.create_weight("bench", rows, cols, dtype, [](uint32_t first, uint32_t, std::span<float> out) -> Status {
          for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>((i + first) % 31) * 0.01f - 0.15f;
          return {};
        })));
  }
  const std::vector<float> values(cols, 0.5f);
  auto x = require(backend.create_buffer(values.size() * 4, "x"));
  require(backend.write(*x, 0, std::as_bytes(std::span(values))));
  auto out = require(backend.create_buffer(uint64_t{rows} * 4, "out"));
  auto batch = require(backend.begin_batch());
  measure_reading(loop, "linear " + std::to_string(rows) + " x " + std::to_string(cols) + " " + std::string(dtype_name(dtype)) + ", 1 row",
                  static_cast<double>(weights[0]->bytes()), [&](int turn) {
                    require(batch->linear({{x.get(), 0, 1, cols, cols},
                                           weights[static_cast<size_t>(turn) % weights.size()].get(),
                                           nullptr,
                                           {out.get(), 0, 1, rows, rows},
                                           compute::LinearStore::overwrite}));
                  });
}

void measure(uint32_t threads) {
  ReadLoop loop(threads);
  auto backend = backends::create_cpu_backend({.threads = threads});
  const double peak = measure_peak(loop);
  std::printf("%s, FMA peak %.1f GFLOP/s\n", backend->info().device.c_str(), peak / 1e9);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    measure_experts(loop, *backend, {"2048 x 1024 top 8", 2048, 1024, 8, 32, dtype}, peak);
    measure_linear(loop, *backend, 16384, 2048, dtype);
  }
  measure_experts(loop, *backend, {"2048 x 768 top 8", 2048, 768, 8, 32, DType::bf16}, peak);
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  std::vector<uint32_t> counts;
  for (int at = 1; at < argc; ++at) counts.push_back(static_cast<uint32_t>(std::strtoul(argv[at], nullptr, 10)));
  if (counts.empty()) counts = {1, 0};
  for (const uint32_t threads : counts) chorus::bench::measure(threads);
  return 0;
}
#endif  // HWY_ONCE
