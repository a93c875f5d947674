// The plan of gated_rms_norm without a device.
#include <gtest/gtest.h>

#include "kernels/common/plan_test_tools.h"
#include "kernels/gated_rms_norm/gated_rms_norm_webgpu.h"

namespace chorus::kernels {
namespace {

compute::GatedRmsNormArgs make_args(compute::Buffer& x, compute::Buffer& gate, compute::Buffer& weight, compute::Buffer& out,
                                    uint32_t stride) {
  compute::GatedRmsNormArgs args;
  args.x = {&x, 0, 6, 64, stride};
  args.gate = {&gate, 0, 6, 64, stride};
  args.weight = &weight;
  args.head_dim = 16;
  args.out = {&out, 0, 6, 64, stride};
  return args;
}

TEST(GatedRmsNormPlan, AlignmentAndSharingPickTheBuild) {
  FakeBuffer x, gate, weight, out;
  const gpu::Capabilities adapter = minimal_capabilities();
  EXPECT_EQ(plan_gated_rms_norm(make_args(x, gate, weight, out, 64), adapter, "")->shader, "vec4");
  EXPECT_EQ(plan_gated_rms_norm(make_args(x, gate, weight, out, 65), adapter, "")->shader, "scalar");
  EXPECT_EQ(plan_gated_rms_norm(make_args(x, gate, weight, x, 64), adapter, "rows")->shader, "vec4_in_place");
  EXPECT_EQ(plan_gated_rms_norm(make_args(x, gate, weight, x, 67), adapter, "rows")->shader, "scalar_in_place");
  for (const char* shader : {"vec4", "scalar", "vec4_in_place", "scalar_in_place"}) {
    EXPECT_NE(find_shader("gated_rms_norm", shader), nullptr) << shader;
  }
}

TEST(GatedRmsNormPlan, RefusesWhatOneDispatchCannotBind) {
  FakeBuffer x, gate, weight;
  const gpu::Capabilities adapter = minimal_capabilities();
  EXPECT_EQ(plan_gated_rms_norm(make_args(x, gate, weight, gate, 64), adapter, "").error().code, ErrorCode::unsupported);
  compute::GatedRmsNormArgs shifted = make_args(x, gate, weight, x, 64);
  shifted.out.offset = 1024;
  EXPECT_EQ(plan_gated_rms_norm(shifted, adapter, "").error().code, ErrorCode::unsupported);
  EXPECT_EQ(plan_gated_rms_norm(make_args(x, gate, weight, x, 64), adapter, "tile").error().code, ErrorCode::not_found);
}

TEST(GatedRmsNormPlan, RowsBeyondOneBindingAreSliced) {
  FakeBuffer x(1ull << 30), gate(1ull << 30), weight, out(1ull << 30);
  compute::GatedRmsNormArgs args = make_args(x, gate, weight, out, 4096);
  args.x.rows = args.gate.rows = args.out.rows = 20000;
  const Result<GatedRmsNormPlan> plan = plan_gated_rms_norm(args, minimal_capabilities(), "");
  ASSERT_TRUE(plan.ok()) << plan.error().to_line();
  uint32_t next = 0;
  for (const RowSlice& slice : plan->slices) {
    EXPECT_EQ(slice.first, next);
    EXPECT_LE(uint64_t{slice.count} * 4096 * 4, 128u << 20);
    next += slice.count;
  }
  EXPECT_EQ(next, 20000u);
  EXPECT_GE(plan->slices.size(), 3u);
}

}  // namespace
}  // namespace chorus::kernels
