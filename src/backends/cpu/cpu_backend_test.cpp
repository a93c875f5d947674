#include "backends/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"

namespace chorus::backends {
namespace {

using compute::Backend;
using compute::Buffer;
using compute::View;

std::vector<float> ramp(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = (static_cast<float>((i * 7919 + seed * 104729) % 2039) - 1019) / 1024;
  return values;
}

std::shared_ptr<Buffer> make_buffer(Backend& backend, std::span<const float> values) {
  auto buffer = backend.create_buffer(values.size() * 4, "test");
  EXPECT_TRUE(buffer.ok()) << buffer.error().to_line();
  const Status status = backend.write(**buffer, 0, std::as_bytes(values));
  EXPECT_TRUE(status.ok()) << status.error().to_line();
  return *buffer;
}

std::vector<float> contents(Backend& backend, const Buffer& buffer) {
  std::vector<float> values(buffer.bytes() / 4);
  const Status status = backend.read(buffer, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.error().to_line();
  return values;
}

compute::RowSource source_of(const std::vector<float>& values, uint32_t cols) {
  return [&values, cols](uint32_t first, uint32_t count, std::span<float> out) -> Status {
    std::memcpy(out.data(), values.data() + static_cast<size_t>(first) * cols, static_cast<size_t>(count) * cols * 4);
    return {};
  };
}

TEST(CpuBackend, BuffersStartAsZerosAndCheckTransfers) {
  auto backend = create_cpu_backend({.threads = 1});
  auto buffer = backend->create_buffer(12, "three");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(contents(*backend, **buffer), std::vector<float>(3, 0.0f));
  std::vector<std::byte> data(16);
  EXPECT_EQ(backend->write(**buffer, 0, data).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(backend->write(**buffer, 4, std::span(data).first(12)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(backend->write(**buffer, 2, std::span(data).first(4)).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(backend->read(**buffer, ~uint64_t{3}, std::span(data).first(4)).error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(backend->read(**buffer, 12, std::span<std::byte>()).ok());
}

TEST(CpuBackend, CountsMemoryAndRefusesWhatDoesNotFit) {
  auto backend = create_cpu_backend({.threads = 1, .memory_limit_bytes = 1 << 20});
  EXPECT_EQ(backend->bytes_in_use(), 0u);
  {
    auto first = backend->create_buffer(700 << 10, "first");
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(backend->bytes_in_use(), 700u << 10);
    auto second = backend->create_buffer(400 << 10, "second");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::out_of_memory);
    EXPECT_NE(second.error().message.find("second"), std::string::npos);
    EXPECT_EQ(backend->bytes_in_use(), 700u << 10);
  }
  EXPECT_EQ(backend->bytes_in_use(), 0u);
  EXPECT_EQ(backend->bytes_peak(), 700u << 10);
  for (uint64_t bytes : {uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    auto huge = backend->create_buffer(bytes, "huge");
    ASSERT_FALSE(huge.ok());
    EXPECT_EQ(huge.error().code, ErrorCode::out_of_memory);
  }
}

// Scratch that does not fit the limit is an error of that operation; the next, smaller one runs.
TEST(CpuBackend, OperationsReportMissingScratchAndTheBackendGoesOn) {
  auto backend = create_cpu_backend({.threads = 1, .memory_limit_bytes = 1 << 20});
  constexpr uint32_t kCols = 512, kRows = 200;
  const std::vector<float> values = ramp(8 * kCols, 2);
  {
    auto weight = backend->create_weight("w", 8, kCols, DType::f32, source_of(values, kCols));
    ASSERT_TRUE(weight.ok()) << weight.error().to_line();
    auto x = make_buffer(*backend, ramp(kRows * kCols, 1)), out = make_buffer(*backend, ramp(kRows * 8, 1));
    auto filler = backend->create_buffer((1 << 20) - backend->bytes_in_use() - (100 << 10), "filler");
    ASSERT_TRUE(filler.ok());
    auto batch = backend->begin_batch();
    ASSERT_TRUE(batch.ok());
    compute::LinearArgs args{
        View{x.get(), 0, kRows, kCols, kCols}, weight->get(), nullptr, {out.get(), 0, kRows, 8, 8}, compute::LinearStore::overwrite};
    const Status refused = (*batch)->linear(args);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
    EXPECT_EQ(contents(*backend, *out), ramp(kRows * 8, 1));
    args.x.rows = args.out.rows = 1;
    EXPECT_TRUE((*batch)->linear(args).ok());
  }
  EXPECT_LE(backend->bytes_peak(), 1u << 20);
}

TEST(CpuBackend, BuffersMayOutliveTheBackend) {
  auto backend = create_cpu_backend({.threads = 1});
  auto buffer = make_buffer(*backend, ramp(100, 1));
  backend.reset();
  buffer.reset();
}

TEST(CpuBackend, WeightsReportSourceErrorsAndBadShapes) {
  auto backend = create_cpu_backend({.threads = 2});
  auto failing = backend->create_weight(
      "w", 40, 8, DType::f32, [](uint32_t, uint32_t, std::span<float>) -> Status { return make_error(ErrorCode::io_failed, "disk gone"); });
  ASSERT_FALSE(failing.ok());
  EXPECT_EQ(failing.error().code, ErrorCode::io_failed);
  EXPECT_EQ(backend->bytes_in_use(), 0u);
  const auto never = [](uint32_t, uint32_t, std::span<float>) -> Status { return {}; };
  EXPECT_EQ(backend->create_weight("w", 0, 8, DType::f32, never).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(backend->create_weight("w", 8, 0, DType::f32, never).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(backend->create_weight("w", 0xffffffffu, 0xffffffffu, DType::f32, never).error().code, ErrorCode::out_of_memory);
}

// A table goes through packing and comes back through embed: each value rounded once.
TEST(CpuBackend, PackedTablesGiveBackTheirRows) {
  constexpr uint32_t kRows = 75, kCols = 37;
  auto backend = create_cpu_backend({.threads = 2});
  const std::vector<float> values = ramp(kRows * kCols, 3);
  std::vector<uint32_t> ids;
  for (uint32_t row = 0; row < kRows; ++row) ids.push_back(kRows - 1 - row);
  ids.push_back(0xffffffffu);  // clamped
  auto id_buffer = backend->create_buffer(ids.size() * 4, "ids");
  ASSERT_TRUE(id_buffer.ok());
  ASSERT_TRUE(backend->write(**id_buffer, 0, std::as_bytes(std::span(ids))).ok());
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    auto weight = backend->create_weight("table", kRows, kCols, dtype, source_of(values, kCols));
    ASSERT_TRUE(weight.ok()) << weight.error().to_line();
    EXPECT_EQ((*weight)->bytes(), backend->weight_bytes(kRows, kCols, dtype));
    auto out = make_buffer(*backend, std::vector<float>(ids.size() * kCols, -7.0f));
    auto batch = backend->begin_batch();
    ASSERT_TRUE(batch.ok());
    const Status status =
        (*batch)->embed({id_buffer->get(), weight->get(), {out.get(), 0, static_cast<uint32_t>(ids.size()), kCols, kCols}});
    ASSERT_TRUE(status.ok()) << status.error().to_line();
    ASSERT_TRUE((*batch)->submit().ok());
    const std::vector<float> found = contents(*backend, *out);
    for (size_t row = 0; row < ids.size(); ++row) {
      for (size_t col = 0; col < kCols; ++col) {
        float expected = values[std::min(ids[row], kRows - 1) * kCols + col];
        if (dtype == DType::f16) expected = f16_to_float(float_to_f16(expected));
        if (dtype == DType::bf16) expected = bf16_to_float(float_to_bf16(expected));
        ASSERT_EQ(found[row * kCols + col], expected) << row << ", " << col;
      }
    }
  }
}

// Loading takes the packed matrix and a bounded staging area, whatever the size of the matrix.
TEST(CpuBackend, PackingNeedsLittleExtraMemory) {
  auto backend = create_cpu_backend({.threads = 1});
  constexpr uint32_t kRows = 20000, kCols = 1024;  // 80 MB as f32
  auto weight = backend->create_weight("w", kRows, kCols, DType::bf16, [](uint32_t, uint32_t, std::span<float>) -> Status { return {}; });
  ASSERT_TRUE(weight.ok());
  EXPECT_LE(backend->bytes_peak(), (*weight)->bytes() + (32u << 20));
}

// One row alone gives the same bits as inside a batch of any size, on every variant and weight type.
TEST(CpuBackend, LinearIsBatchInvariantAndThreadInvariant) {
  constexpr uint32_t kRows = 130, kCols = 600, kOut = 71;
  const std::vector<float> x = ramp(kRows * kCols, 5), w = ramp(kOut * kCols, 6), bias = ramp(kOut, 7);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::string& variant : create_cpu_backend({.threads = 1})->variants("linear")) {
      std::vector<float> whole;
      for (uint32_t threads : {1u, 3u}) {
        auto backend = create_cpu_backend({.threads = threads});
        ASSERT_TRUE(backend->force_variant("linear", variant).ok());
        auto weight = backend->create_weight("w", kOut, kCols, dtype, source_of(w, kCols));
        ASSERT_TRUE(weight.ok());
        auto x_buffer = make_buffer(*backend, x), bias_buffer = make_buffer(*backend, bias);
        auto batch = backend->begin_batch();
        ASSERT_TRUE(batch.ok());
        for (uint32_t rows : {kRows, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 12u, 13u, 24u, 25u, 64u}) {
          auto out = make_buffer(*backend, std::vector<float>(kRows * kOut));
          for (uint32_t first = 0; first < kRows; first += rows) {
            const uint32_t count = std::min(rows, kRows - first);
            const Status status = (*batch)->linear({View{x_buffer.get(), uint64_t{first} * kCols, count, kCols, kCols},
                                                    weight->get(),
                                                    bias_buffer.get(),
                                                    {out.get(), uint64_t{first} * kOut, count, kOut, kOut},
                                                    compute::LinearStore::overwrite});
            ASSERT_TRUE(status.ok()) << status.error().to_line();
          }
          const std::vector<float> found = contents(*backend, *out);
          if (whole.empty()) whole = found;
          ASSERT_EQ(std::memcmp(found.data(), whole.data(), found.size() * 4), 0)
              << variant << ", " << dtype_name(dtype) << ", " << rows << " rows at a time, " << threads << " threads";
        }
      }
    }
  }
}

TEST(CpuBackend, RefusesForeignBuffersAndBadArguments) {
  class ForeignBuffer final : public Buffer {
   public:
    ForeignBuffer() : Buffer(400) {}
  };
  auto backend = create_cpu_backend({.threads = 1});
  auto weight = make_buffer(*backend, ramp(10, 1)), out = make_buffer(*backend, ramp(100, 1));
  ForeignBuffer foreign;
  auto batch = backend->begin_batch();
  ASSERT_TRUE(batch.ok());
  const Status status =
      (*batch)->rms_norm({View{&foreign, 0, 2, 10, 10}, weight.get(), 1e-6f, compute::NormWeight::plain, {out.get(), 0, 2, 10, 10}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(backend->write(foreign, 0, {}).ok());
  EXPECT_FALSE((*batch)->swiglu({}).ok());
  EXPECT_EQ(contents(*backend, *out), ramp(100, 1));
}

TEST(CpuBackend, VariantsCanBeForcedByName) {
  auto backend = create_cpu_backend({.threads = 1});
  for (const char* operation : {"embed", "linear", "rms_norm", "gated_rms_norm", "swiglu", "causal_conv", "gated_delta", "qk_norm_rope",
                                "attention", "gather_rows", "pointer_scores", "segment_softmax", "attend", "select_keys"}) {
    const auto variants = backend->variants(operation);
    EXPECT_FALSE(variants.empty()) << operation;
    for (const std::string& variant : variants) EXPECT_TRUE(backend->force_variant(operation, variant).ok());
    EXPECT_EQ(backend->force_variant(operation, "no such").error().code, ErrorCode::not_found);
    EXPECT_TRUE(backend->force_variant(operation, "").ok());
  }
  EXPECT_TRUE(backend->variants("no such").empty());
}

TEST(CpuBackend, ProfilesWhenAsked) {
  auto backend = create_cpu_backend({.threads = 1, .profile = true});
  auto a = make_buffer(*backend, ramp(8, 1)), b = make_buffer(*backend, ramp(8, 2));
  auto batch = backend->begin_batch();
  ASSERT_TRUE((*batch)->copy({a.get(), 0, b.get(), 0, 32}).ok());
  EXPECT_EQ(contents(*backend, *b), ramp(8, 1));
  auto times = backend->take_kernel_times();
  ASSERT_TRUE(times.ok());
  ASSERT_EQ(times->size(), 1u);
  EXPECT_EQ(times->front().kernel, "copy");
  EXPECT_EQ(times->front().calls, 1u);
  EXPECT_TRUE(backend->take_kernel_times()->empty());
}

TEST(CpuBackend, AbsurdThreadCountIsReported) {
  auto backend = create_cpu_backend({.threads = 1u << 30});
  EXPECT_EQ(backend->fallbacks().size(), 1u);
}

}  // namespace
}  // namespace chorus::backends
