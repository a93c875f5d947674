#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "model/budget_suite.h"
#include "model/language_suite.h"

namespace chorus {
namespace {

class LanguageOnCpu : public testing::Test {
 protected:
  std::unique_ptr<compute::Backend> backend_ = backends::create_cpu_backend({});
};

TEST_F(LanguageOnCpu, FixturesMatchTheirReferences) {
  for (const auto fixture : language_suite::fixtures()) language_suite::check_against_reference(*backend_, fixture);
}
TEST_F(LanguageOnCpu, GeneratedTextsAreTheReferences) { language_suite::check_generated_texts(*backend_); }
TEST_F(LanguageOnCpu, SplitsAndCompanyDoNotMatter) {
  for (const auto fixture : language_suite::fixtures()) language_suite::check_splits_and_company(*backend_, fixture);
}
TEST_F(LanguageOnCpu, BudgetsOfExpertsChangeNoBit) {
  for (const auto fixture : {"qwen3_moe", "qwen3_5_moe_text"}) budget_suite::check_budgets(*backend_, fixture);
}
TEST_F(LanguageOnCpu, ContinuingEqualsReadingAnew) {
  for (const auto fixture : {"deepseek_v32", "glm_moe_dsa"}) language_suite::check_continued_choices(*backend_, fixture, 24);
}
TEST_F(LanguageOnCpu, HiddenStatesAreComparedInPieces) {
  for (const auto fixture : {"qwen3", "qwen3_5_moe_text", "gpt_oss"}) language_suite::check_hidden_states_in_pieces(*backend_, fixture);
}
TEST_F(LanguageOnCpu, ClonesContinueAlone) {
  for (const auto fixture : language_suite::fixtures()) language_suite::check_clones(*backend_, fixture);
}
TEST_F(LanguageOnCpu, BadStepsAreRefused) { language_suite::check_bad_steps(*backend_); }

}  // namespace
}  // namespace chorus
