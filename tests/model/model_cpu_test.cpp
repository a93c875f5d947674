#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "model/model_suite.h"

namespace chorus {
namespace {

class ModelOnCpu : public testing::Test {
 protected:
  std::unique_ptr<compute::Backend> backend_ = backends::create_cpu_backend({});
};

TEST_F(ModelOnCpu, FixtureMatchesReference) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) model_suite::check_fixture_against_reference(*backend_, dtype);
}
TEST_F(ModelOnCpu, KevMiniMatchesReference) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) model_suite::check_kev_mini_against_reference(*backend_, dtype);
}
TEST_F(ModelOnCpu, AnySplitOfAPromptIsTheSame) { model_suite::check_prompt_splits(*backend_); }
TEST_F(ModelOnCpu, QuestionsTogetherOrAlone) { model_suite::check_question_batches(*backend_, 500); }
TEST_F(ModelOnCpu, SmallPasses) { model_suite::check_small_passes(*backend_); }
TEST_F(ModelOnCpu, TwoPrefixes) { model_suite::check_two_prefixes(*backend_); }
TEST_F(ModelOnCpu, LongState) { model_suite::check_long_state(*backend_, 8192); }

}  // namespace
}  // namespace chorus
