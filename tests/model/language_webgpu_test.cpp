// On the adapter that the environment selects (VK_DRIVER_FILES). No adapter is a failure. Every fixture against its reference is the verify
// stage of test.sh; here are the promises that need no reference.
#include <gtest/gtest.h>

#include "backends/webgpu/webgpu_backend.h"
#include "model/budget_suite.h"
#include "model/language_suite.h"

namespace chorus {
namespace {

class LanguageOnWebgpu : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    gpu::DeviceOptions options;
    options.allow_software = true;
    auto made = backends::create_webgpu_backend(options);
    ASSERT_TRUE(made.ok()) << made.error().to_line();
    backend_ = std::move(made).value().release();
  }
  static void TearDownTestSuite() {
    delete backend_;
    backend_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(backend_, nullptr); }
  static compute::Backend* backend_;
};
compute::Backend* LanguageOnWebgpu::backend_ = nullptr;

TEST_F(LanguageOnWebgpu, SplitsAndCompanyDoNotMatter) {
  for (const auto fixture : {"qwen3_5_moe_text", "deepseek_v32", "gpt_oss"}) language_suite::check_splits_and_company(*backend_, fixture);
}
TEST_F(LanguageOnWebgpu, BudgetsOfExpertsChangeNoBit) { budget_suite::check_budgets(*backend_, "qwen3_5_moe_text"); }
TEST_F(LanguageOnWebgpu, ContinuingEqualsReadingAnew) { language_suite::check_continued_choices(*backend_, "deepseek_v32", 6); }
TEST_F(LanguageOnWebgpu, ClonesContinueAlone) {
  for (const auto fixture : {"qwen3_5_moe_text", "glm_moe_dsa"}) language_suite::check_clones(*backend_, fixture);
}
TEST_F(LanguageOnWebgpu, BadStepsAreRefused) { language_suite::check_bad_steps(*backend_); }

}  // namespace
}  // namespace chorus
