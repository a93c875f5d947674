// Weights on the device: shards under a capped binding limit, padding, rounding, small host slices. And the backend's own promises.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/webgpu/webgpu_backend.h"
#include "backends/webgpu/weight_upload.h"
#include "selftest/selftest.h"

namespace chorus::backends {
namespace {

gpu::DeviceOptions capped_options(uint64_t binding_bytes) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  options.storage_binding_bytes_cap = binding_bytes;
  return options;
}

float value_at(uint32_t row, uint32_t col) { return static_cast<float>(row) * 0.25f + static_cast<float>(col) * 0.001f - 3.0f; }

TEST(WeightLayout, PadsColumnsAndCountsWholeRows) {
  const WeightLayout layout = weight_layout(1000, 10, DType::bf16, 4096);
  EXPECT_EQ(layout.padded_cols, 12u);
  EXPECT_EQ(layout.row_bytes, 24u);
  EXPECT_EQ(layout.rows_per_shard, 170u);
  EXPECT_EQ(layout.bytes, 24000u);
}

TEST(WeightLayout, EdgesOfTheBindingLimit) {
  EXPECT_EQ(weight_layout(16, 16, DType::f32, 1024).rows_per_shard, 16u);
  EXPECT_EQ(weight_layout(17, 16, DType::f32, 1024).rows_per_shard, 16u);
  EXPECT_EQ(weight_layout(17, 16, DType::f32, 1023).rows_per_shard, 15u);
  EXPECT_EQ(weight_layout(3, 257, DType::f32, 1024).rows_per_shard, 0u);
}

class WeightOnDevice : public testing::TestWithParam<DType> {};

TEST_P(WeightOnDevice, IsStoredAsDocumented) {
  Result<std::unique_ptr<gpu::Device>> device = gpu::Device::create(capped_options(4096));
  ASSERT_TRUE(device.ok()) << device.error().to_line();
  constexpr uint32_t rows = 203, cols = 37;
  uint32_t next_row = 0;
  const auto source = [&](uint32_t first, uint32_t count, std::span<float> out) -> Status {
    EXPECT_EQ(first, next_row);
    EXPECT_EQ(out.size(), size_t{count} * cols);
    for (uint32_t row = 0; row < count; ++row) {
      for (uint32_t col = 0; col < cols; ++col) out[size_t{row} * cols + col] = value_at(first + row, col);
    }
    next_row = first + count;
    return {};
  };
  Result<std::shared_ptr<kernels::WebgpuWeight>> weight = upload_weight(**device, "test", rows, cols, GetParam(), source);
  ASSERT_TRUE(weight.ok()) << weight.error().to_line();
  EXPECT_EQ(next_row, rows);
  const uint32_t padded = (*weight)->padded_cols();
  EXPECT_EQ(padded, 40u);
  ASSERT_GT((*weight)->shards().size(), 1u);
  uint32_t row = 0;
  for (const kernels::WebgpuWeight::Shard& shard : (*weight)->shards()) {
    EXPECT_EQ(shard.first_row, row);
    EXPECT_LE(shard.storage->bytes(), 4096u);
    std::vector<std::byte> bytes(shard.storage->bytes());
    ASSERT_TRUE((*device)->read(shard.storage, 0, bytes).ok());
    const size_t element = dtype_bytes(GetParam());
    for (uint32_t at = 0; at < shard.row_count; ++at, ++row) {
      for (uint32_t col = 0; col < padded; ++col) {
        uint32_t bits = 0;
        std::memcpy(&bits, bytes.data() + (size_t{at} * padded + col) * element, element);
        float found = 0;
        if (GetParam() == DType::f32) std::memcpy(&found, &bits, 4);
        if (GetParam() == DType::bf16) {
          bits <<= 16;
          std::memcpy(&found, &bits, 4);
        }
        if (GetParam() == DType::f16 && (bits & 0x7fffu) != 0) {  // no subnormal or infinity among these values
          found = std::ldexp(static_cast<float>((bits & 0x3ffu) | 0x400u), static_cast<int>(bits >> 10 & 31u) - 25);
          if ((bits & 0x8000u) != 0) found = -found;
        }
        const float expected = col < cols ? value_at(row, col) : 0.0f;
        const float unit = GetParam() == DType::f32 ? 0.0f : (GetParam() == DType::f16 ? 0x1p-11f : 0x1p-8f);
        ASSERT_LE(std::abs(found - expected), unit * std::abs(expected)) << row << ", " << col;
      }
    }
  }
  EXPECT_EQ(row, rows);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightOnDevice, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const testing::TestParamInfo<DType>& one) { return std::string(dtype_name(one.param)); });

TEST(WeightOnDevice, LargeOnesComeInSmallSlices) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  Result<std::unique_ptr<gpu::Device>> device = gpu::Device::create(options);
  ASSERT_TRUE(device.ok()) << device.error().to_line();
  size_t largest = 0;
  const auto source = [&](uint32_t, uint32_t, std::span<float> out) -> Status {
    largest = std::max(largest, out.size_bytes());
    std::fill(out.begin(), out.end(), 1.0f);
    return {};
  };
  Result<std::shared_ptr<kernels::WebgpuWeight>> weight = upload_weight(**device, "large", 8192, 1024, DType::bf16, source);
  ASSERT_TRUE(weight.ok()) << weight.error().to_line();
  EXPECT_LE(largest, 16u << 20);
  EXPECT_LE((*device)->bytes_peak(), (*weight)->bytes() + (25u << 20));  // three staging buffers of 8 MiB
}

TEST(WeightOnDevice, ErrorsOfTheSourceComeBack) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  Result<std::unique_ptr<compute::Backend>> backend = create_webgpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  const uint64_t in_use = (*backend)->bytes_in_use();
  const auto weight = (*backend)->create_weight("bad", 10, 10, DType::f32, [](uint32_t, uint32_t, std::span<float>) -> Status {
    return make_error(ErrorCode::io_failed, "the file ended");
  });
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.error().code, ErrorCode::io_failed);
  EXPECT_EQ((*backend)->bytes_in_use(), in_use);
}

TEST(WeightOnDevice, ARowLargerThanABindingIsRefused) {
  Result<std::unique_ptr<compute::Backend>> backend = create_webgpu_backend(capped_options(4096));
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  const auto weight = (*backend)->create_weight("wide", 2, 1025, DType::f32, [](uint32_t, uint32_t, std::span<float>) { return Status(); });
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.error().code, ErrorCode::limit_exceeded);
  EXPECT_NE(weight.error().message.find("wide"), std::string::npos);
}

// The embedding over many shards and in folded grids, as on an adapter with tiny limits.
TEST(CappedBackend, EmbedAndGatherUnderTinyLimits) {
  gpu::DeviceOptions options = capped_options(512 << 10);
  options.workgroups_per_dimension_cap = 300;
  Result<std::unique_ptr<compute::Backend>> backend = create_webgpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  size_t cases = 0;
  for (const auto run : {selftest::run_embed_cases, selftest::run_gather_rows_cases}) {
    for (const selftest::CaseResult& result : run(**backend, selftest::CaseSet::full)) {
      EXPECT_TRUE(result.pass) << result.operation << " " << result.name << ": " << result.detail;
      ++cases;
    }
  }
  EXPECT_GT(cases, 0u);
}

TEST(WebgpuBackend, ADroppedBatchLeavesNothingBehind) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  Result<std::unique_ptr<compute::Backend>> backend = create_webgpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  auto source = (*backend)->create_buffer(64, "source"), target = (*backend)->create_buffer(64, "target");
  ASSERT_TRUE(source.ok() && target.ok());
  const std::vector<uint32_t> ones(16, 1);
  ASSERT_TRUE((*backend)->write(**source, 0, std::as_bytes(std::span(ones))).ok());
  {
    auto batch = (*backend)->begin_batch();
    ASSERT_TRUE(batch.ok());
    ASSERT_TRUE((*batch)->copy({source->get(), 0, target->get(), 0, 64}).ok());
  }
  std::vector<uint32_t> values(16, 7);
  ASSERT_TRUE((*backend)->read(**target, 0, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_EQ(values, std::vector<uint32_t>(16, 0));
  auto batch = (*backend)->begin_batch();
  ASSERT_TRUE((*batch)->copy({source->get(), 0, target->get(), 32, 32}).ok());
  ASSERT_TRUE((*batch)->submit().ok());
  ASSERT_TRUE((*backend)->read(**target, 0, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_EQ(values[7], 0u);
  EXPECT_EQ(values[8], 1u);
}

TEST(WebgpuBackend, UnknownVariantsAreRefused) {
  gpu::DeviceOptions options;
  options.allow_software = true;
  Result<std::unique_ptr<compute::Backend>> backend = create_webgpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  EXPECT_EQ((*backend)->force_variant("embed", "nonsense").error().code, ErrorCode::not_found);
  EXPECT_EQ((*backend)->force_variant("nonsense", "base").error().code, ErrorCode::not_found);
  EXPECT_TRUE((*backend)->force_variant("embed", "base").ok());
  EXPECT_TRUE((*backend)->force_variant("embed", "").ok());
}

}  // namespace
}  // namespace chorus::backends
