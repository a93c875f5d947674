// Every known-answer case of every operation on the cpu backend with 1, 2 and 3 threads, and: the number of threads changes no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/sanitizers.h"
#include "selftest/case_tools.h"
#include "selftest/selftest.h"

namespace chorus {
namespace {

using selftest::Random;

// Sanitizers look at every path, for which the quick cases do; the full ones run optimised, between sentinels.
constexpr auto kCases = kAddressSanitizer ? selftest::CaseSet::quick : selftest::CaseSet::full;

class OperationsCpu : public testing::TestWithParam<std::tuple<uint32_t, selftest::OperationCases>> {};

TEST_P(OperationsCpu, MatchesItsReference) {
  const auto& [threads, operation] = GetParam();
  auto backend = backends::create_cpu_backend({.threads = threads});
  ASSERT_TRUE(backend->fallbacks().empty());
  const std::vector<selftest::CaseResult> results = operation.run(*backend, kCases);
  ASSERT_FALSE(results.empty()) << "no case ran";
  for (const std::string& variant : backend->variants(operation.operation)) {
    const auto of_variant = [&](const selftest::CaseResult& result) { return result.variant == variant; };
    EXPECT_TRUE(std::ranges::any_of(results, of_variant)) << "no case ran for variant " << variant;
  }
  size_t passed = 0;
  for (const selftest::CaseResult& result : results) {
    EXPECT_TRUE(result.pass) << result.operation << "/" << result.variant << " " << result.name << ": error " << result.error
                             << ", tolerance " << result.tolerance << "; " << result.detail;
    passed += result.pass ? 1 : 0;
  }
  std::printf("%zu of %zu cases passed\n", passed, results.size());
}

INSTANTIATE_TEST_SUITE_P(All, OperationsCpu, testing::Combine(testing::Values(1u, 2u, 3u), testing::ValuesIn(selftest::all_operations())),
                         [](const auto& one) {
                           return std::string(std::get<1>(one.param).operation) + "_" + std::to_string(std::get<0>(one.param)) + "_threads";
                         });

TEST(OperationsCpu, ThereAreOperations) { EXPECT_FALSE(selftest::all_operations().empty()); }

// Runs operations that are cut into many tasks and collects what they write.
class Collector {
 public:
  explicit Collector(uint32_t threads) : backend_(backends::create_cpu_backend({.threads = threads})) {}

  std::vector<float> run() {
    auto batch = backend_->begin_batch();
    EXPECT_TRUE(batch.ok());
    for (const char* operation : {"linear", "gated_delta", "attention", "attend"}) {
      for (const std::string& variant : backend_->variants(operation)) {
        EXPECT_TRUE(backend_->force_variant(operation, variant).ok());
        if (std::string_view(operation) == "linear") linear(**batch);
        if (std::string_view(operation) == "gated_delta") gated_delta(**batch);
        if (std::string_view(operation) == "attention") attention(**batch);
        if (std::string_view(operation) == "attend") attend(**batch);
      }
      EXPECT_TRUE(backend_->force_variant(operation, "").ok());
    }
    row_operations(**batch);
    return std::move(collected_);
  }

 private:
  compute::Buffer* input(uint64_t count, uint64_t seed) {
    auto buffer = selftest::upload(*backend_, Random(seed).vector(count));
    EXPECT_TRUE(buffer.ok());
    kept_.push_back(*buffer);
    return buffer->get();
  }
  compute::View matrix(uint32_t rows, uint32_t cols, uint64_t seed) { return {input(uint64_t{rows} * cols, seed), 0, rows, cols, cols}; }
  compute::MutableView output(uint32_t rows, uint32_t cols) { return {input(uint64_t{rows} * cols, 99), 0, rows, cols, cols}; }

  void collect(const Status& status, const compute::Buffer* buffer) {
    EXPECT_TRUE(status.ok()) << status.error().to_line();
    const auto values = selftest::download(*backend_, *buffer);
    ASSERT_TRUE(values.ok());
    collected_.insert(collected_.end(), values->begin(), values->end());
  }

  const compute::Sequences& sequences(std::initializer_list<uint32_t> lengths) {
    sequences_.spans.clear();
    std::vector<uint32_t> pairs;
    uint32_t start = 0;
    for (uint32_t length : lengths) {
      sequences_.spans.push_back({start, length});
      pairs.insert(pairs.end(), {start, length});
      start += length;
    }
    auto buffer = selftest::upload_u32(*backend_, pairs);
    EXPECT_TRUE(buffer.ok());
    kept_.push_back(*buffer);
    sequences_.device = buffer->get();
    return sequences_;
  }

  void linear(compute::Batch& batch) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const std::vector<float> values = Random(1).vector(70 * 300);
      auto weight = selftest::upload_weight(*backend_, values, 70, 300, dtype);
      ASSERT_TRUE(weight.ok());
      const compute::MutableView out = output(150, 70);
      collect(batch.linear({matrix(150, 300, 2), weight->get(), input(70, 3), out, compute::LinearStore::add}), out.buffer);
    }
  }

  void gated_delta(compute::Batch& batch) {
    const compute::MutableView out = output(140, 4 * 32);
    compute::Buffer* state = input(4 * 16 * 32, 9);
    collect(batch.gated_delta({{2, 4, 16, 32},
                               matrix(140, 2 * 32 + 128, 4),
                               matrix(140, 4, 5),
                               matrix(140, 4, 6),
                               input(4, 7),
                               input(4, 8),
                               state,
                               nullptr,
                               &sequences({70, 1, 69}),
                               out}),
            out.buffer);
    compute::Buffer* state_out = input(1 * 16 * 64, 99);
    const compute::MutableView one = output(65, 64);
    collect(batch.gated_delta({{1, 1, 16, 64},
                               matrix(65, 96, 4),
                               matrix(65, 1, 5),
                               matrix(65, 1, 6),
                               input(1, 7),
                               input(1, 8),
                               input(16 * 64, 9),
                               state_out,
                               &sequences({65}),
                               one}),
            state_out);
  }

  void attention(compute::Batch& batch) {
    const compute::MutableView out = output(130, 4 * 24);
    collect(batch.attention({{4, 2, 24},
                             0.2f,
                             matrix(130, 96, 10),
                             matrix(130, 192, 11),
                             matrix(90, 48, 12),
                             matrix(90, 48, 13),
                             matrix(130, 48, 14),
                             matrix(130, 48, 15),
                             &sequences({100, 1, 29}),
                             out}),
            out.buffer);
  }

  // Few rows (spans of keys are tasks) and many (tiles of rows are).
  void attend(compute::Batch& batch) {
    for (const uint32_t rows : {1u, 90u}) {
      compute::AttendArgs args;
      args.query_heads = 4;
      args.kv_heads = 2;
      args.key_dim = args.value_dim = 24;
      args.scale = 0.2f;
      args.q = matrix(rows, 96, 31);
      args.keys = matrix(1300, 48, 32);
      args.values = matrix(1300, 48, 33);
      args.out = output(rows, 96);
      collect(batch.attend(args), args.out.buffer);
    }
    const uint32_t words = (1300 + 31) / 32;
    compute::Buffer* selected = input(5 * words, 99);
    collect(batch.select_keys({3, 20, 100, 0.2f, matrix(5, 60, 34), matrix(1300, 20, 35), matrix(5, 3, 36), selected}), selected);
  }

  void row_operations(compute::Batch& batch) {
    constexpr uint32_t kRows = 300;
    compute::MutableView out = output(kRows, 200);
    collect(batch.rms_norm({matrix(kRows, 200, 16), input(200, 17), 1e-6f, compute::NormWeight::one_plus, out}), out.buffer);
    out = output(kRows, 200);
    collect(batch.gated_rms_norm({matrix(kRows, 200, 18), matrix(kRows, 200, 19), input(50, 20), 50, 1e-6f, out}), out.buffer);
    out = output(kRows, 100);
    collect(batch.swiglu({matrix(kRows, 200, 21), out}), out.buffer);
    out = output(kRows, 200);
    collect(batch.causal_conv({matrix(kRows, 200, 22), input(800, 23), input(600, 24), nullptr, &sequences({299, 1}), out}), out.buffer);
    out = output(kRows, 200);
    collect(batch.layer_norm({matrix(kRows, 200, 31), input(200, 32), input(200, 33), 1e-6f, out}), out.buffer);
    out = output(kRows, 96);
    collect(batch.rope({4, 24, 8, 12, compute::RopeForm::pairs, matrix(kRows, 96, 34), matrix(kRows, 6, 35), matrix(kRows, 6, 36), out}),
            out.buffer);
    const std::vector<float> values = Random(37).vector(3 * 50 * 40);
    auto weight = selftest::upload_weight(*backend_, values, 3 * 50, 40, DType::f32);
    ASSERT_TRUE(weight.ok());
    out = output(kRows, 150);
    collect(batch.head_linear({3, 40, matrix(kRows, 120, 38), weight->get(), out}), out.buffer);
    const compute::MutableView q = output(kRows, 96), k = output(kRows, 48), v = output(kRows, 48);
    collect(batch.qk_norm_rope({{4, 2, 24},
                                12,
                                1e-6f,
                                matrix(kRows, 192, 25),
                                matrix(kRows, 96, 26),
                                input(24, 27),
                                input(24, 28),
                                matrix(kRows, 6, 29),
                                matrix(kRows, 6, 30),
                                q,
                                k,
                                v}),
            q.buffer);
  }

  std::unique_ptr<compute::Backend> backend_;
  std::vector<std::shared_ptr<compute::Buffer>> kept_;
  compute::Sequences sequences_;
  std::vector<float> collected_;
};

TEST(OperationsCpu, TheNumberOfThreadsChangesNoBit) {
  const std::vector<float> expected = Collector(1).run();
  ASSERT_GT(expected.size(), 100000u);
  for (uint32_t threads : {2u, 3u, 8u}) {
    const std::vector<float> found = Collector(threads).run();
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace chorus
