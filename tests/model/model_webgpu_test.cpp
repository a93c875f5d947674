// On the adapter that the environment selects (VK_DRIVER_FILES). No adapter is a failure.
#include <gtest/gtest.h>

#include "backends/webgpu/webgpu_backend.h"
#include "model/model_suite.h"

namespace chorus {
namespace {

class ModelOnWebgpu : public testing::Test {
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
compute::Backend* ModelOnWebgpu::backend_ = nullptr;

TEST_F(ModelOnWebgpu, FixtureMatchesReference) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) model_suite::check_fixture_against_reference(*backend_, dtype);
}
// kev-mini against its reference, in all three types and on each adapter, is the verify stage of test.sh.
TEST_F(ModelOnWebgpu, AnySplitOfAPromptIsTheSame) { model_suite::check_prompt_splits(*backend_); }
TEST_F(ModelOnWebgpu, QuestionsTogetherOrAlone) { model_suite::check_question_batches(*backend_, {1, 8, 9, 64}); }
TEST_F(ModelOnWebgpu, SmallPasses) { model_suite::check_small_passes(*backend_); }
TEST_F(ModelOnWebgpu, TwoPrefixes) { model_suite::check_two_prefixes(*backend_); }
TEST_F(ModelOnWebgpu, LongState) { model_suite::check_long_state(*backend_, 2100); }

}  // namespace
}  // namespace chorus
