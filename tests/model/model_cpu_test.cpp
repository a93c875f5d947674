#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "base/sanitizers.h"
#include "formats/checkpoint.h"
#include "model/model_suite.h"
#include "models/qwen35.h"

namespace chorus {
namespace {

// Sanitizers slow these tests by an order of magnitude; the plain build runs the full sizes.
constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

class ModelOnCpu : public testing::Test {
 protected:
  std::unique_ptr<compute::Backend> backend_ = backends::create_cpu_backend({});
};

TEST_F(ModelOnCpu, FixtureMatchesReference) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) model_suite::check_fixture_against_reference(*backend_, dtype);
}
TEST_F(ModelOnCpu, HiddenStatesAreComparedInPieces) { model_suite::check_hidden_states_in_pieces(*backend_); }
TEST_F(ModelOnCpu, KevMiniMatchesReference) {
  model_suite::check_kev_mini_against_reference(*backend_, DType::f32);
  if (kSanitized) return;
  for (DType dtype : {DType::bf16, DType::f16}) model_suite::check_kev_mini_against_reference(*backend_, dtype);
}
TEST_F(ModelOnCpu, AnySplitOfAPromptIsTheSame) { model_suite::check_prompt_splits(*backend_); }
TEST_F(ModelOnCpu, QuestionsTogetherOrAlone) {
  model_suite::check_question_batches(*backend_, kSanitized ? std::set<uint32_t>{1, 8, 9} : std::set<uint32_t>{1, 8, 9, 64, 500});
}
TEST_F(ModelOnCpu, SmallPasses) { model_suite::check_small_passes(*backend_); }
TEST_F(ModelOnCpu, TwoPrefixes) { model_suite::check_two_prefixes(*backend_); }
TEST_F(ModelOnCpu, LongState) { model_suite::check_long_state(*backend_, kSanitized ? 2100 : 8192); }

// The weights of a checkpoint with one value replaced.
class OneValueChanged final : public formats::WeightSource {
 public:
  OneValueChanged(const formats::WeightSource& inner, std::string name, float value)
      : inner_(inner), name_(std::move(name)), value_(value) {}
  bool has(std::string_view name) const override { return inner_.has(name); }
  Result<std::vector<uint64_t>> shape(std::string_view name) const override { return inner_.shape(name); }
  Result<formats::FileDType> stored_type(std::string_view name) const override { return inner_.stored_type(name); }
  std::vector<std::string> names() const override { return inner_.names(); }
  Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const override {
    CHORUS_TRY(inner_.read_rows(name, first_row, row_count, out));
    if (name == name_ && first_row == 0) out[1] = value_;
    return {};
  }

 private:
  const formats::WeightSource& inner_;
  std::string name_;
  float value_;
};

TEST_F(ModelOnCpu, WeightBeyondF16IsRefusedByName) {
  const auto checkpoint = formats::open_checkpoint(std::filesystem::path(CHORUS_TEST_DATA) / "qwen3_5_text");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_line();
  models::LoadOptions options;
  const auto load = [&](float value, DType dtype) {
    options.dtype = dtype;
    const OneValueChanged weights(*checkpoint->weights, "layers.0.mlp.up_proj.weight", value);
    return models::Qwen35::load(*backend_, checkpoint->config, weights, options);
  };
  EXPECT_TRUE(load(-65504, DType::f16).ok());
  EXPECT_TRUE(load(1e6f, DType::bf16).ok());
  EXPECT_TRUE(load(1e6f, DType::f32).ok());
  const auto refused = load(-65520, DType::f16);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_NE(refused.error().message.find("layers.0.mlp.up_proj.weight"), std::string::npos) << refused.error().to_line();
}

}  // namespace
}  // namespace chorus
