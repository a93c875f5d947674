// The plan of linear without a device.
#include <gtest/gtest.h>

#include <memory>

#include "kernels/common/plan_test_tools.h"
#include "kernels/linear/linear_webgpu.h"

namespace chorus::kernels {
namespace {

gpu::Capabilities big_adapter() {
  gpu::Capabilities capabilities;
  capabilities.name = "NVIDIA H200";
  capabilities.storage_binding_bytes_max = (uint64_t{2} << 30) - 4;
  capabilities.workgroup_invocations_max = 1024;
  capabilities.workgroup_storage_bytes_max = 49152;
  capabilities.workgroups_per_dimension_max = 65535;
  return capabilities;
}

gpu::Capabilities matrix_adapter() {
  gpu::Capabilities capabilities = big_adapter();
  capabilities.f16 = capabilities.subgroups = capabilities.subgroup_matrix = true;
  capabilities.subgroup_size_min = capabilities.subgroup_size_max = 32;
  capabilities.subgroup_matrix_shapes = {{"f16", "f16", 16, 16, 16}, {"f16", "f32", 16, 16, 16}};
  return capabilities;
}

gpu::Capabilities base_adapter() {
  gpu::Capabilities capabilities = big_adapter();
  capabilities.name = "some adapter";
  capabilities.storage_binding_bytes_max = uint64_t{128} << 20;
  capabilities.workgroup_invocations_max = 256;
  capabilities.workgroup_storage_bytes_max = 16384;
  return capabilities;
}

// Buffers, weight and arguments of one product.
struct Product {
  Product(uint32_t rows, uint32_t cols, uint32_t depth, uint32_t rows_per_shard = UINT32_MAX, DType dtype = DType::f32)
      : x(std::make_shared<FakeStorage>(uint64_t{rows} * depth * 4 + 64)),
        out(std::make_shared<FakeStorage>(uint64_t{rows} * cols * 4 + 64)) {
    const uint32_t padded = (depth + 3) / 4 * 4;
    std::vector<WebgpuWeight::Shard> shards;
    for (uint32_t first = 0; first < cols; first += std::min(rows_per_shard, cols - first)) {
      const uint32_t count = std::min(rows_per_shard, cols - first);
      shards.push_back({first, count, std::make_shared<FakeStorage>(uint64_t{count} * padded * dtype_bytes(dtype))});
    }
    weight = std::make_unique<WebgpuWeight>(cols, depth, padded, dtype, 0, std::move(shards));
    args.x = {&x, 0, rows, depth, depth};
    args.weight = weight.get();
    args.out = {&out, 0, rows, cols, cols};
  }
  WebgpuBuffer x, out;
  std::unique_ptr<WebgpuWeight> weight;
  compute::LinearArgs args;
};

uint64_t workgroups(const gpu::Grid& grid) { return uint64_t{grid.x} * grid.y * grid.z; }

TEST(LinearPlan, NoRowsNeedNoDispatch) {
  Product product(0, 5, 4);
  auto plan = plan_linear(product.args, big_adapter(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_TRUE(plan->steps.empty());
}

TEST(LinearPlan, ABaseAdapterHasTheTilesOf16KiB) {
  EXPECT_EQ(linear_variants(base_adapter()), (std::vector<std::string>{"row", "row256", "split", "tile32", "tile64"}));
  EXPECT_EQ(linear_variants(big_adapter()),
            (std::vector<std::string>{"row", "row256", "split", "tile32", "tile64", "tile64x128", "tile128"}));
  Product product(100, 100, 100);
  auto plan = plan_linear(product.args, base_adapter(), "tile128");
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::not_found);
}

TEST(LinearPlan, EveryVariantHasABuildForEveryTypeAndAccess) {
  for (const std::string& variant : linear_variants(big_adapter())) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const uint32_t cols : {64u, 63u}) {
        Product product(70, cols, 64, UINT32_MAX, dtype);
        auto plan = plan_linear(product.args, big_adapter(), variant);
        ASSERT_TRUE(plan.ok()) << plan.error().to_line();
        for (const LinearStep& step : plan->steps) {
          ASSERT_NE(step.shader, nullptr);
          const std::string access = cols == 64 ? "_quad" : "_element";
          EXPECT_NE(step.shader->variant.find(dtype_name(dtype)), std::string_view::npos) << step.shader->variant;
          EXPECT_NE(step.shader->variant.find(access), std::string_view::npos) << step.shader->variant;
        }
      }
    }
  }
}

TEST(LinearPlan, FewRowsTakeTheRowVariant) {
  Product product(8, 2560, 9216);
  auto plan = plan_linear(product.args, big_adapter(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->variant, "row256");
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(workgroups(plan->steps[0].grid), 640u);
}

std::string row_build(const Product& product, const gpu::Capabilities& capabilities) {
  auto plan = plan_linear(product.args, capabilities, "");
  return plan && !plan->steps.empty() ? std::string(plan->steps[0].shader->variant) : "none";
}

TEST(LinearPlan, RowBuildsFollowTheWeightAndTheRows) {
  EXPECT_EQ(row_build({1, 2048, 2048, UINT32_MAX, DType::f16}, big_adapter()), "f16_oct_quad_1_256");
  EXPECT_EQ(row_build({3, 2048, 2048, UINT32_MAX, DType::f16}, big_adapter()), "f16_oct_quad_4_256");
  EXPECT_EQ(row_build({8, 50304, 2048, UINT32_MAX, DType::bf16}, big_adapter()), "bf16_oct_quad_8_64");
  EXPECT_EQ(row_build({1, 2048, 512, UINT32_MAX, DType::f16}, big_adapter()), "f16_oct_quad_1_64");  // k too short to share
  EXPECT_EQ(row_build({1, 2048, 2052, UINT32_MAX, DType::f16}, big_adapter()), "f16_quad_quad_8_256");
  EXPECT_EQ(row_build({1, 2046, 2048, UINT32_MAX, DType::f16}, big_adapter()), "f16_oct_element_8_256");
  EXPECT_EQ(row_build({1, 2048, 2048, UINT32_MAX, DType::f32}, big_adapter()), "f32_quad_quad_1_256");
  gpu::Capabilities software = base_adapter();
  software.software = true;
  EXPECT_EQ(row_build({1, 2048, 2048, UINT32_MAX, DType::f16}, software), "f16_oct_quad_1_64");
}

TEST(LinearPlan, TheForcedRowVariantTakesEightRowsAtATime) {
  Product product(19, 12, 8);
  auto plan = plan_linear(product.args, big_adapter(), "row");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->steps.size(), 3u);
  EXPECT_EQ(plan->steps[2].params.rows, 3u);
  EXPECT_EQ(plan->steps[2].params.x_offset, 16u * 8u);
  EXPECT_EQ(plan->steps[2].params.result_offset, 16u * 12u);
}

TEST(LinearPlan, PassesOfTheForcedRowVariantFitTheirBindings) {
  gpu::Capabilities narrow = base_adapter();
  narrow.storage_binding_bytes_max = 16384;
  Product product(11, 3, 1160);  // three rows of x fit
  auto plan = plan_linear(product.args, narrow, "row");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  uint32_t next = 0;
  for (const LinearStep& step : plan->steps) {
    EXPECT_EQ(step.slice.first, next);
    EXPECT_LE(step.slice.count, 3u);
    next += step.slice.count;
  }
  EXPECT_EQ(next, 11u);
}

TEST(LinearPlan, AProductThatFillsTheDeviceIsNotSplit) {
  Product product(2048, 18432, 2560);
  auto plan = plan_linear(product.args, big_adapter(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->variant, "tile128");
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].reduce_shader, nullptr);
  EXPECT_EQ(workgroups(plan->steps[0].grid), 16u * 144u);
}

TEST(LinearPlan, AProductOfFewTilesIsSplitAlongK) {
  Product product(60, 2560, 9216);
  auto plan = plan_linear(product.args, big_adapter(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->steps.size(), 1u);
  const LinearStep& step = plan->steps[0];
  EXPECT_GT(step.params.splits, 3u);
  ASSERT_NE(step.reduce_shader, nullptr);
  EXPECT_GE(workgroups(step.grid), 132u);
  EXPECT_EQ(step.scratch_bytes, uint64_t{step.params.splits} * 60 * 2560 * 4);
  EXPECT_EQ(step.params.flags, 0u);
  EXPECT_GE(workgroups(step.reduce_grid) * 64, 60u * 640u);
}

TEST(LinearPlan, SplitsCoverKOnceAndNoneIsEmpty) {
  for (const uint32_t rows : {9u, 33u, 60u, 300u, 2048u}) {
    for (const uint32_t depth : {1u, 4u, 100u, 1024u, 2053u, 9216u}) {
      for (const std::string_view forced : {"", "split", "tile32", "tile128", "matrix64", "matrix128"}) {
        const gpu::Capabilities adapter = forced.starts_with("matrix") ? matrix_adapter() : big_adapter();
        const uint32_t quads = (depth + 3) / 4;
        const LinearCut cut = cut_linear({rows, 1024, quads, DType::f32}, adapter, forced);
        ASSERT_FALSE(cut.variant.empty());
        EXPECT_GE(uint64_t{cut.splits} * cut.split_quads, quads) << rows << " " << depth << " " << forced;
        EXPECT_LT((cut.splits - 1) * cut.split_quads, quads) << rows << " " << depth << " " << forced;
      }
    }
  }
}

TEST(LinearPlan, TheSplitVariantSplitsWhereItCan) {
  EXPECT_EQ(cut_linear({70, 132, 50, DType::f32}, big_adapter(), "split").splits, 3u);
  EXPECT_EQ(cut_linear({70, 132, 4, DType::f32}, big_adapter(), "split").splits, 1u);
}

TEST(LinearPlan, ShardsWriteTheirColumns) {
  Product product(70, 40, 16, 12);
  std::shared_ptr<gpu::Storage> bias_storage = std::make_shared<FakeStorage>(160);
  WebgpuBuffer bias(bias_storage);
  product.args.bias = &bias;
  auto plan = plan_linear(product.args, big_adapter(), "tile64");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->steps.size(), 4u);
  for (size_t index = 0; index < 4; ++index) {
    const LinearStep& step = plan->steps[index];
    EXPECT_EQ(step.weight.storage, product.weight->shards()[index].storage);
    EXPECT_EQ(step.weight.offset, 0u);
    EXPECT_EQ(step.params.cols, index == 3 ? 4u : 12u);
    const LinearParams& stored = step.reduce_shader ? step.reduce_params : step.params;
    EXPECT_EQ(stored.result_offset, index * 12);
    EXPECT_EQ(stored.bias_offset, index * 12);
    EXPECT_EQ(stored.flags, kLinearFlagBias);
    EXPECT_TRUE(step.shader->variant.ends_with("_quad"));
  }
}

TEST(LinearPlan, AShardOfOddWidthIsReadByElements) {
  Product product(70, 40, 16, 13);
  auto plan = plan_linear(product.args, big_adapter(), "");
  ASSERT_TRUE(plan.ok());
  for (const LinearStep& step : plan->steps) EXPECT_TRUE(step.shader->variant.ends_with("_element"));
}

// 18,432 x 2,560 f32 weights as terms are 189 MB: the product goes part by part, so that scratch stays small.
TEST(LinearPlan, LargeWeightsGoThroughTermsInParts) {
  Product product(704, 18432, 2560);
  auto plan = plan_linear(product.args, matrix_adapter(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->steps.size(), 1u);
  uint32_t next = 0;
  for (const LinearStep& step : plan->steps) {
    const LinearParams& stored = step.reduce_shader ? step.reduce_params : step.params;
    EXPECT_EQ(stored.result_offset, next);
    EXPECT_EQ(step.weight.offset, uint64_t{next} * 2560 * 4);
    EXPECT_EQ(step.weight.offset % 256, 0u);
    EXPECT_EQ(step.weight.size, uint64_t{step.params.cols} * 2560 * 4);
    ASSERT_TRUE(step.matrix.has_value());
    EXPECT_LE(step.matrix->weight.plane_bytes, uint64_t{48} << 20);
    EXPECT_EQ(step.matrix->weight.reserve_bytes, uint64_t{48} << 20);
    next += step.params.cols;
  }
  EXPECT_EQ(next, 18432u);
}

TEST(LinearPlan, FewRowsTakeLargeWeightsWhole) {
  Product product(60, 18432, 2560);
  auto plan = plan_linear(product.args, matrix_adapter(), "");
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_FALSE(plan->steps[0].matrix.has_value());
}

TEST(LinearPlan, RowsThatDoNotFitABindingAreSliced) {
  gpu::Capabilities capabilities = base_adapter();
  capabilities.storage_binding_bytes_max = 8192;
  Product product(67, 16, 100);
  auto plan = plan_linear(product.args, capabilities, "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  uint32_t rows = 0;
  for (const LinearStep& step : plan->steps) {
    EXPECT_EQ(step.slice.first, rows);
    rows += step.slice.count;
    EXPECT_EQ(step.x.offset % 256, 0u);
    EXPECT_LE(step.x.size, 8192u);
    EXPECT_GE(step.x.size, (step.params.x_offset + (step.slice.count - 1) * 100 + 100) * 4u);
    EXPECT_LE(step.scratch_bytes, 8192u);
  }
  EXPECT_EQ(rows, 67u);
  Product wide(2, 16, 3000);
  auto refused = plan_linear(wide.args, capabilities, "");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::limit_exceeded);
}

TEST(LinearPlan, GridsFold) {
  gpu::Capabilities capabilities = big_adapter();
  capabilities.workgroups_per_dimension_max = 7;
  Product product(300, 1000, 64);
  auto plan = plan_linear(product.args, capabilities, "tile32");
  ASSERT_TRUE(plan.ok());
  for (const LinearStep& step : plan->steps) {
    EXPECT_LE(step.grid.x, 7u) << "tiles " << step.params.tiles_m * step.params.tiles_n;
    EXPECT_GE(workgroups(step.grid), uint64_t{step.params.tiles_m} * step.params.tiles_n * step.params.splits);
  }
}

TEST(LinearPlan, MatricesNeedTheirShapeAndSubgroupsOf32) {
  EXPECT_EQ(linear_variants(matrix_adapter()),
            (std::vector<std::string>{"row", "row256", "split", "tile32", "tile64", "tile64x128", "tile128", "matrix64", "matrix128"}));
  gpu::Capabilities capabilities = matrix_adapter();
  capabilities.subgroup_size_max = 64;
  EXPECT_EQ(linear_variants(capabilities).back(), "tile128");
  capabilities = matrix_adapter();
  capabilities.subgroup_matrix_shapes.pop_back();
  EXPECT_EQ(linear_variants(capabilities).back(), "tile128");
}

TEST(LinearPlan, MatricesTakeTermsOfXAndOfWeightsThatAreNotF16) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Product product(300, 200, 72, UINT32_MAX, dtype);
    auto plan = plan_linear(product.args, matrix_adapter(), "matrix128");
    ASSERT_TRUE(plan.ok()) << plan.error().to_line();
    ASSERT_EQ(plan->steps.size(), 1u);
    ASSERT_TRUE(plan->steps[0].matrix.has_value());
    const LinearMatrix& matrix = *plan->steps[0].matrix;
    EXPECT_EQ(matrix.x.shader->variant, "x_quad");
    EXPECT_EQ(matrix.params.octs, 9u);
    EXPECT_EQ(matrix.x.plane_bytes, 300u * 9 * 16 * 2);
    if (dtype == DType::f16) {
      EXPECT_EQ(matrix.weight.shader, nullptr);
      EXPECT_EQ(matrix.params.flags & kLinearFlagWeightScales, 0u);
    } else {
      ASSERT_NE(matrix.weight.shader, nullptr);
      EXPECT_EQ(matrix.params.flags & kLinearFlagWeightScales, kLinearFlagWeightScales);
      EXPECT_EQ(matrix.weight.plane_bytes, 200u * 9 * 16 * (dtype == DType::f32 ? 2 : 1));
    }
    EXPECT_EQ(plan->steps[0].shader->variant, dtype == DType::f32 ? "t128_2_quad" : "t128_1_quad");
  }
}

TEST(LinearPlan, AnF16WeightOfHalfAnOctIsWrittenAgain) {
  Product product(300, 200, 76, UINT32_MAX, DType::f16);
  auto plan = plan_linear(product.args, matrix_adapter(), "matrix64");
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->steps[0].matrix.has_value());
  EXPECT_EQ(plan->steps[0].matrix->params.octs, 10u);
  ASSERT_NE(plan->steps[0].matrix->weight.shader, nullptr);
  EXPECT_EQ(plan->steps[0].matrix->weight.shader->variant, "weight_f16");
}

TEST(LinearPlan, TermsThatDoNotFitScratchFallBackToAPlainTile) {
  gpu::Capabilities capabilities = matrix_adapter();
  capabilities.storage_binding_bytes_max = 8192;
  Product product(40, 20, 100, 20);
  auto plan = plan_linear(product.args, capabilities, "matrix128");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  EXPECT_EQ(plan->variant, "tile64");
}

TEST(LinearPlan, AnOutputInTheBufferOfItsInputIsRefused) {
  Product product(10, 8, 8);
  product.args.out.buffer = &product.x;
  auto plan = plan_linear(product.args, big_adapter(), "");
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace chorus::kernels
