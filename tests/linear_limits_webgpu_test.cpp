// The known-answer cases of linear on an adapter that pretends to have less than it has: weights in shards, rows in slices, folded grids.
#include <gtest/gtest.h>

#include "selftest/selftest.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

void run_quick_cases(const gpu::DeviceOptions& options) {
  auto backend = backends::create_webgpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().to_line();
  const std::vector<selftest::CaseResult> results = selftest::run_linear_cases(**backend, selftest::CaseSet::quick);
  ASSERT_FALSE(results.empty());
  for (const selftest::CaseResult& result : results) {
    EXPECT_TRUE(result.pass) << result.variant << " " << result.name << ": error " << result.error << ", tolerance " << result.tolerance
                             << "; " << result.detail;
  }
}

TEST(LinearLimits, SmallBindings) {
  gpu::DeviceOptions options = tests::test_device_options();
  options.storage_binding_bytes_cap = 16384;
  run_quick_cases(options);
}

TEST(LinearLimits, SmallGrids) {
  gpu::DeviceOptions options = tests::test_device_options();
  options.workgroups_per_dimension_cap = 16;
  run_quick_cases(options);
}

}  // namespace
}  // namespace chorus
