#include <gtest/gtest.h>

#include <array>

#include "experts/cached_test_tools.h"
#include "webgpu_test_device.h"

namespace chorus::experts {
namespace {

using testing::FakeStore;

TEST(CachedExpertsOnWebgpu, EveryBudgetGivesTheBitsOfResidentExperts) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  const FakeStore store({8, 0, 8}, {24, 16, DType::f32, false});
  const std::array<uint32_t, 3> budgets = {1, 7, 16};
  testing::check_every_budget(*backend, store, budgets);
}

TEST(CachedExpertsOnWebgpu, HostMemoryMayBeSmallerOrLargerThanTheDevices) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  const FakeStore store({8, 0, 8}, {24, 16, DType::f32, false});
  const std::array<uint32_t, 1> budgets = {5};
  for (const uint32_t host_slots : {1u, 16u}) testing::check_every_budget(*backend, store, budgets, host_slots);
}

TEST(CachedExpertsOnWebgpu, AFailingReadEndsItsCallOnly) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  for (const uint32_t slots : {1u, 6u}) {
    FakeStore store({8, 0, 8}, {24, 16, DType::f32, false});
    testing::check_failing_reads(*backend, store, slots);
  }
}

}  // namespace
}  // namespace chorus::experts
