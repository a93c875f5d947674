// Every known-answer case of every operation on the adapter that the environment selects. No adapter or no case is a failure.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>
#include <string>

#include "selftest/selftest.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace selftest {

void PrintTo(const OperationCases& cases, std::ostream* out) { *out << cases.operation; }

}  // namespace selftest
namespace {

class OperationsWebgpu : public testing::TestWithParam<selftest::OperationCases> {};

TEST_P(OperationsWebgpu, MatchesItsReference) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  std::printf("adapter: %s, %s\n", backend->info().device.c_str(), backend->info().driver.c_str());
  const std::vector<selftest::CaseResult> results = GetParam().run(*backend, selftest::CaseSet::full);
  ASSERT_FALSE(results.empty()) << "no case ran";
  size_t passed = 0;
  for (const selftest::CaseResult& result : results) {
    EXPECT_TRUE(result.pass) << result.operation << "/" << result.variant << " " << result.name << ": error " << result.error
                             << ", tolerance " << result.tolerance << "; " << result.detail;
    passed += result.pass ? 1 : 0;
  }
  std::printf("%zu of %zu cases passed\n", passed, results.size());
}

INSTANTIATE_TEST_SUITE_P(All, OperationsWebgpu, testing::ValuesIn(selftest::all_operations()),
                         [](const testing::TestParamInfo<selftest::OperationCases>& one) { return std::string(one.param.operation); });

TEST(OperationsWebgpu, EveryOperationHasAVariant) {
  compute::Backend* backend = tests::shared_webgpu_backend();
  ASSERT_NE(backend, nullptr);
  for (const selftest::OperationCases& cases : selftest::all_operations()) {
    EXPECT_FALSE(backend->variants(cases.operation).empty()) << cases.operation;
  }
}

}  // namespace
}  // namespace chorus
