// The disk's sequential read rate and the rate at which the expert store reads experts in random order, in one run and past the page cache.
// usage: expert_store_bench MODEL [--dtype f32|f16|bf16] [--threads N] [--gigabytes N] [--buffered]
// MODEL: a folder, as `chorus make-checkpoint` writes it, or a file packed from one. Both parts read about the given amount. The rates are
// taken in turn, three times; the medians are compared.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "experts/direct_file.h"
#include "experts/expert_system.h"
#include "experts/packed_store.h"
#include "experts/reading_pool.h"

namespace chorus::experts {
namespace {

constexpr uint64_t kPiece = 8 << 20;  // of the sequential read
constexpr int kRounds = 3;

struct Options {
  std::string model;
  DType dtype = DType::bf16;
  uint32_t threads = 4;
  double gigabytes = 2;
  bool direct = true;
};

double seconds() { return ExpertCache::steady_seconds(); }

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Aligned = std::unique_ptr<std::byte, Free>;
Aligned aligned_bytes(uint64_t bytes) {
  return Aligned(static_cast<std::byte*>(std::aligned_alloc(kPackedAlignment, (bytes + 4095) / 4096 * 4096)));
}

// Bytes a second of reading the model's files from front to back, pieces shared out to the threads in order.
Result<double> sequential_rate(const models::LanguageCheckpoint& checkpoint, const Options& options, uint32_t threads) {
  std::vector<DirectFile> files;
  std::vector<std::pair<size_t, uint64_t>> pieces;
  const auto bytes_max = static_cast<uint64_t>(options.gigabytes * 1e9);
  for (const auto& mapped : checkpoint.store->files()) {
    CHORUS_ASSIGN(DirectFile file, DirectFile::open(mapped.path(), options.direct));
    for (uint64_t at = 0; at + kPiece <= file.size() && pieces.size() * kPiece < bytes_max; at += kPiece)
      pieces.emplace_back(files.size(), at);
    files.push_back(std::move(file));
  }
  if (pieces.empty()) return make_error(ErrorCode::invalid_argument, "the model is smaller than 8 MiB: too small to measure");
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const double begin = seconds();
  std::vector<std::thread> readers;
  for (uint32_t i = 0; i < threads; ++i) {
    readers.emplace_back([&] {
      const Aligned memory = aligned_bytes(kPiece);
      for (size_t at = next++; at < pieces.size(); at = next++) {
        if (!files[pieces[at].first].read(pieces[at].second, {memory.get(), kPiece}).ok()) failed = true;
      }
    });
  }
  for (auto& reader : readers) reader.join();
  if (failed) return make_error(ErrorCode::io_failed, "cannot read the model's files");
  return static_cast<double>(pieces.size() * kPiece) / (seconds() - begin);
}

// The same of reading whole experts in random order, as many at a time as one token of eight routes needs.
Result<double> store_rate(const ExpertStore& store, const Options& options, uint32_t seed) {
  constexpr uint32_t kAtOnce = 8;
  std::vector<ExpertKey> keys;
  for (uint32_t layer = 0; layer < store.layers(); ++layer) {
    for (uint32_t expert = 0; expert < store.experts(layer); ++expert) keys.push_back({layer, expert});
  }
  std::shuffle(keys.begin(), keys.end(), std::mt19937(seed));
  keys.resize(std::min<size_t>(keys.size(), static_cast<size_t>(options.gigabytes * 1e9 / static_cast<double>(store.stored_bytes())) + 1));
  CHORUS_ASSIGN(const auto pool, ReadingPool::create(store, options.threads));
  const uint64_t stride = packed_stride(store.record_bytes());
  const Aligned memory = aligned_bytes(stride * kAtOnce);
  std::memset(memory.get(), 0, stride * kAtOnce);
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t open = 0;
  Status status;
  const double begin = seconds();
  for (size_t at = 0; at < keys.size(); at += kAtOnce) {
    const size_t count = std::min<size_t>(kAtOnce, keys.size() - at);
    open = static_cast<uint32_t>(count);
    for (size_t i = 0; i < count; ++i) {
      pool->start(keys[at + i], {memory.get() + i * stride, stride}, ReadingPool::Urgency::wanted_now, [&](Status done) {
        const std::scoped_lock lock(mutex);
        if (!done.ok()) status = std::move(done);
        --open;
        changed.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open == 0; });
    CHORUS_TRY(status);
  }
  return static_cast<double>(keys.size() * store.stored_bytes()) / (seconds() - begin);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Status run(const Options& options) {
  CHORUS_ASSIGN(const auto checkpoint, models::open_language_checkpoint(options.model));
  CHORUS_ASSIGN(const auto store, open_expert_store(checkpoint, options.dtype, options.direct));
  std::printf("%s: experts of %.2f MB on disk, %.2f MB as %s records, %u parts, %s, %u threads\n", options.model.c_str(),
              static_cast<double>(store->stored_bytes()) / 1e6, static_cast<double>(store->record_bytes()) / 1e6,
              std::string(dtype_name(options.dtype)).c_str(), store->parts(),
              store->direct() ? "past the page cache" : "through the page cache", options.threads);
  std::vector<double> one, many, experts;
  for (int round = 0; round < kRounds; ++round) {
    CHORUS_ASSIGN(const double one_rate, sequential_rate(checkpoint, options, 1));
    CHORUS_ASSIGN(const double many_rate, sequential_rate(checkpoint, options, options.threads));
    CHORUS_ASSIGN(const double expert_rate, store_rate(*store, options, static_cast<uint32_t>(round) + 1));
    one.push_back(one_rate);
    many.push_back(many_rate);
    experts.push_back(expert_rate);
  }
  const double disk = std::max(median(one), median(many));
  std::printf("sequential, 8 MiB reads, 1 thread:   %7.1f MB/s\n", median(one) / 1e6);
  std::printf("sequential, 8 MiB reads, %u threads:  %7.1f MB/s\n", options.threads, median(many) / 1e6);
  std::printf("experts in random order:             %7.1f MB/s, %.0f %% of the faster\n", median(experts) / 1e6,
              100 * median(experts) / disk);
  return {};
}

int usage() {
  std::fprintf(stderr, "usage: expert_store_bench MODEL [--dtype f32|f16|bf16] [--threads N] [--gigabytes N] [--buffered]\n");
  return 2;
}

int main_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (flag == "--buffered") {
      options.direct = false;
    } else if (flag.starts_with("--")) {
      if (value == nullptr) return usage();
      ++i;
      if (flag == "--dtype" && parse_dtype(value)) {
        options.dtype = *parse_dtype(value);
      } else if (flag == "--threads" && std::atoi(value) > 0) {
        options.threads = static_cast<uint32_t>(std::atoi(value));
      } else if (flag == "--gigabytes" && std::atof(value) > 0) {
        options.gigabytes = std::atof(value);
      } else {
        return usage();
      }
    } else {
      options.model = flag;
    }
  }
  if (options.model.empty()) return usage();
  const auto status = run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().to_line().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace chorus::experts

int main(int argc, char** argv) { return chorus::experts::main_of(argc, argv); }
