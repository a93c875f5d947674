// The plan of embed without a device: shards, grids past one dimension, windows of large buffers, refused variants.
#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/embed/embed_webgpu.h"

namespace chorus::kernels {
namespace {

std::shared_ptr<gpu::Storage> fake(uint64_t bytes) { return std::make_shared<FakeStorage>(bytes); }

gpu::Capabilities small_adapter() {
  gpu::Capabilities adapter;
  adapter.storage_binding_bytes_max = 128ull << 20;
  adapter.buffer_bytes_max = 4ull << 30;
  adapter.workgroups_per_dimension_max = 65535;
  return adapter;
}

WebgpuWeight make_table(uint32_t rows, uint32_t cols, DType dtype, uint32_t rows_per_shard) {
  const uint32_t padded = (cols + 3) / 4 * 4;
  std::vector<WebgpuWeight::Shard> shards;
  for (uint32_t first = 0; first < rows; first += rows_per_shard) {
    const uint32_t count = std::min(rows_per_shard, rows - first);
    shards.push_back({first, count, fake(uint64_t{count} * padded * dtype_bytes(dtype))});
  }
  return {rows, cols, padded, dtype, uint64_t{rows} * padded * dtype_bytes(dtype), shards};
}

TEST(EmbedPlan, OneDispatchPerShard) {
  const WebgpuWeight table = make_table(1000, 10, DType::f16, 400);
  WebgpuBuffer ids(fake(40)), out(fake(4000));
  const compute::EmbedArgs args{&ids, &table, {&out, 3, 10, 10, 12}};
  const Result<EmbedPlan> plan = plan_embed(args, small_adapter(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_EQ(plan->steps.size(), 3u);
  const EmbedParams& last = plan->steps[2].params;
  EXPECT_EQ(last.shard_first_row, 800u);
  EXPECT_EQ(last.shard_rows, 200u);
  EXPECT_EQ(last.quads_per_row, 3u);
  EXPECT_EQ(last.out_offset, 3u);
  EXPECT_EQ(last.out_stride, 12u);
  EXPECT_EQ(last.table_rows, 1000u);
  EXPECT_EQ(plan->shader->variant, "f16");
  EXPECT_EQ(plan->steps[2].grid.x, 10u);
}

TEST(EmbedPlan, FoldsPastOneDimension) {
  const WebgpuWeight table = make_table(10, 257, DType::f32, 10);
  WebgpuBuffer ids(fake(40000 * 4)), out(fake(40000ull * 257 * 4));
  const compute::EmbedArgs args{&ids, &table, {&out, 0, 40000, 257, 257}};
  const Result<EmbedPlan> plan = plan_embed(args, small_adapter(), "base");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].params.chunks_per_row, 2u);
  EXPECT_GE(uint64_t{plan->steps[0].grid.x} * plan->steps[0].grid.y, 80000u);
  EXPECT_LE(plan->steps[0].grid.x, 65535u);
}

TEST(EmbedPlan, AnOutputLargerThanABindingIsWrittenInSlices) {
  const WebgpuWeight table = make_table(10, 1024, DType::f32, 10);
  constexpr uint32_t rows = 70000;  // 273 MiB
  WebgpuBuffer ids(fake(rows * 4)), out(fake(uint64_t{rows} * 4096));
  const Result<EmbedPlan> plan = plan_embed({&ids, &table, {&out, 0, rows, 1024, 1024}}, small_adapter(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  ASSERT_GE(plan->steps.size(), 3u);
  uint32_t next = 0;
  for (const EmbedStep& step : plan->steps) {
    EXPECT_EQ(step.params.first_row, next);
    EXPECT_LE(step.out.size, 128ull << 20);
    EXPECT_EQ(step.out.offset / 4 + step.params.out_offset, uint64_t{next} * 1024);
    next += step.params.rows;
  }
  EXPECT_EQ(next, rows);
}

TEST(EmbedPlan, NoRowsNoDispatch) {
  const WebgpuWeight table = make_table(10, 8, DType::f32, 10);
  WebgpuBuffer ids(fake(4)), out(fake(4));
  const Result<EmbedPlan> plan = plan_embed({&ids, &table, {&out, 0, 0, 8, 8}}, small_adapter(), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->steps.empty());
}

TEST(EmbedPlan, UnknownVariantIsRefused) {
  const WebgpuWeight table = make_table(10, 8, DType::f32, 10);
  WebgpuBuffer ids(fake(4)), out(fake(32));
  EXPECT_EQ(plan_embed({&ids, &table, {&out, 0, 1, 8, 8}}, small_adapter(), "fast").error().code, ErrorCode::unsupported);
}

TEST(BindView, WholeBufferWhenItFits) {
  WebgpuBuffer buffer(fake(1 << 20));
  const Result<BoundView> bound = bind_view({&buffer, 1000, 10, 20, 30}, gpu::Access::read, small_adapter());
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->binding.offset, 0u);
  EXPECT_EQ(bound->binding.size, 0u);
  EXPECT_EQ(bound->offset, 1000u);
}

TEST(BindView, AlignedWindowOfALargeBuffer) {
  WebgpuBuffer buffer(fake(512ull << 20));
  const compute::View view{&buffer, 100'000'003, 1000, 64, 64};
  const Result<BoundView> bound = bind_view(view, gpu::Access::read, small_adapter());
  ASSERT_TRUE(bound.ok()) << bound.error().to_line();
  EXPECT_EQ(bound->binding.offset % 256, 0u);
  EXPECT_EQ(bound->binding.offset / 4 + bound->offset, view.offset);
  EXPECT_GE(bound->binding.offset + bound->binding.size, (view.offset + 64000) * 4);
  EXPECT_LE(bound->binding.size, 128ull << 20);
}

TEST(BindView, WindowAtTheEndStaysInside) {
  WebgpuBuffer buffer(fake((256ull << 20) + 4));
  const compute::View view{&buffer, 64ull << 20, 1, 1, 1};  // the last element
  const Result<BoundView> bound = bind_view(view, gpu::Access::read, small_adapter());
  ASSERT_TRUE(bound.ok());
  EXPECT_LE(bound->binding.offset + bound->binding.size, (256ull << 20) + 16);
  EXPECT_EQ(bound->binding.offset / 4 + bound->offset, view.offset);
}

TEST(BindView, AViewLargerThanABindingIsRefused) {
  WebgpuBuffer buffer(fake(512ull << 20));
  const Result<BoundView> bound = bind_view({&buffer, 0, 40'000, 1024, 1024}, gpu::Access::read, small_adapter());
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, ErrorCode::limit_exceeded);
}

}  // namespace
}  // namespace chorus::kernels
