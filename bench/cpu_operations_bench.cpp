// Time of every other operation on the processor at the sizes of one layer of Qwen3.5 0.8B, for a given number of rows.
// usage: cpu_operations_bench [rows] [threads]   (default: 2048 rows, one thread; the clock is processor time with one thread)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"

namespace chorus::bench {
namespace {

using compute::Buffer;
using compute::MutableView;
using compute::View;

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

class Bench {
 public:
  Bench(uint32_t rows, uint32_t threads)
      : rows_(rows),
        threads_(threads),
        backend_(backends::create_cpu_backend({.threads = threads})),
        batch_(require(backend_->begin_batch())) {}

  void run() {
    std::printf("%s, %u rows\n", backend_->info().device.c_str(), rows_);
    norms();
    convolution();
    gated_delta();
    attention();
  }

 private:
  Buffer* buffer(uint64_t count) {
    std::vector<float> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 2654435761u) % 1999) / 1000.0f - 1.0f;
    buffers_.push_back(require(backend_->create_buffer(count * 4, "bench")));
    require(backend_->write(*buffers_.back(), 0, std::as_bytes(std::span(values))));
    return buffers_.back().get();
  }
  MutableView matrix(uint32_t cols) { return {buffer(uint64_t{rows_} * cols), 0, rows_, cols, cols}; }

  double now() const {
    timespec time{};
    clock_gettime(threads_ == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  // operations: floating-point operations, 0 when bytes say more.
  template <typename Work>
  void measure(const char* name, double operations, double bytes, const Work& work) {
    double best = 1e30;
    for (int repetition = 0; repetition < 7; ++repetition) {
      const double begin = now();
      require(work());
      best = std::min(best, now() - begin);
    }
    std::printf("  %-16s %9.3f ms", name, best * 1e3);
    if (operations > 0) std::printf(" %8.1f GFLOP/s", operations / best / 1e9);
    if (bytes > 0) std::printf(" %8.1f GB/s", bytes / best / 1e9);
    std::printf("\n");
  }

  void norms() {
    const MutableView x = matrix(1024), out = matrix(1024), heads = matrix(2048), gate = matrix(2048), normed = matrix(2048);
    const MutableView gate_up = matrix(7168), hidden = matrix(3584);
    Buffer* weight = buffer(1024);
    measure("rms_norm", 0, 8.0 * rows_ * 1024, [&] { return batch_->rms_norm({x, weight, 1e-6f, compute::NormWeight::one_plus, out}); });
    measure("gated_rms_norm", 0, 12.0 * rows_ * 2048, [&] { return batch_->gated_rms_norm({heads, gate, weight, 128, 1e-6f, normed}); });
    measure("swiglu", 0, 12.0 * rows_ * 3584, [&] { return batch_->swiglu({gate_up, hidden}); });
  }

  const compute::Sequences& one_sequence() {
    const uint32_t pair[] = {0, rows_};
    Buffer* device = buffer(2);
    require(backend_->write(*device, 0, std::as_bytes(std::span(pair))));
    sequences_ = {{{0, rows_}}, device};
    return sequences_;
  }

  void convolution() {
    const MutableView x = matrix(6144), out = matrix(6144);
    Buffer *weight = buffer(4 * 6144), *history = buffer(3 * 6144);
    measure("causal_conv", 0, 8.0 * rows_ * 6144, [&] { return batch_->causal_conv({x, weight, history, nullptr, &one_sequence(), out}); });
  }

  void gated_delta() {
    const MutableView qkv = matrix(6144), b = matrix(16), a = matrix(16), out = matrix(2048);
    Buffer *a_log = buffer(16), *dt_bias = buffer(16), *state = buffer(16 * 128 * 128), *state_out = buffer(16 * 128 * 128);
    // Operations of the token form: decay, read, update and output of each element of the state.
    const double operations = 7.0 * rows_ * 16 * 128 * 128;
    measure("gated_delta", operations, 0, [&] {
      return batch_->gated_delta({{16, 16, 128, 128}, qkv, b, a, a_log, dt_bias, state, state_out, &one_sequence(), out});
    });
  }

  void attention() {
    const compute::AttentionShape shape{8, 2, 256};
    const MutableView q_gate = matrix(4096), kv = matrix(1024), q = matrix(2048), k = matrix(512), v = matrix(512), out = matrix(2048);
    const MutableView cosine = matrix(32), sine = matrix(32);
    Buffer* weight = buffer(256);
    measure("qk_norm_rope", 0, 8.0 * rows_ * (2048 + 1024), [&] {
      return batch_->qk_norm_rope({shape, 64, 1e-6f, q_gate, kv, weight, weight, cosine, sine, q, k, v});
    });
    const double operations = 4.0 * 2048 * rows_ * (rows_ + 1.0) / 2;
    measure("attention", operations, 0, [&] { return batch_->attention({shape, 0.0625f, q, q_gate, {}, {}, k, v, &one_sequence(), out}); });
  }

  uint32_t rows_, threads_;
  std::unique_ptr<compute::Backend> backend_;
  std::unique_ptr<compute::Batch> batch_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  compute::Sequences sequences_;
};

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  const uint32_t rows = argc > 1 ? static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10)) : 2048;
  const uint32_t threads = argc > 2 ? static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)) : 1;
  chorus::bench::Bench(rows, threads).run();
  return 0;
}
