// Device loss and lack of memory in the middle of a run: an error for that call, and the next request works.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "backends/cpu/cpu_backend.h"
#include "chorus/chorus.h"
#include "formats/json.h"
#include "model/failing_backend.h"
#include "runtime/model.h"

namespace chorus {
namespace {

class ModelFailures : public testing::Test {
 protected:
  void SetUp() override {
    ModelOptions options;
    options.model = std::string(CHORUS_MODELS) + "/kev-mini";
    options.base = std::string(CHORUS_MODELS) + "/kev-mini-base";
    auto model = runtime::load_model(options, [this](const runtime::BackendRequest&) -> Result<runtime::BackendChoice> {
      ++backends_made_;
      return runtime::BackendChoice{std::make_unique<FailingBackend>(backends::create_cpu_backend({}), plan_), "test"};
    });
    ASSERT_TRUE(model.ok()) << model.error().to_line();
    model_ = std::move(model).value();
  }

  // The answers of the response, without the time.
  std::string answers() {
    auto response = model_->system_one_json(kRequest);
    if (!response.ok()) return "error: " + std::string(error_code_name(response.error().code));
    auto parsed = formats::parse_json(*response);
    EXPECT_TRUE(parsed.ok());
    return formats::json_dumps(*parsed->find("answers"));
  }

  static constexpr const char* kRequest =
      R"({"state": "Hello, where is my parcel?", "questions": {"q": {"type": "choice", "criteria": {"calm": null, "angry": null}}}})";
  std::shared_ptr<FailurePlan> plan_ = std::make_shared<FailurePlan>();
  int backends_made_ = 0;
  std::unique_ptr<Model> model_;
};

TEST_F(ModelFailures, OutOfMemoryAtEveryAllocation) {
  const std::string expected = answers();
  ASSERT_EQ(expected.find("error"), std::string::npos);
  int failures = 0;
  for (int left = 0; left < 200; ++left) {
    plan_->buffers_left = left;
    const std::string found = answers();
    plan_->buffers_left = -1;
    if (found == expected) break;
    EXPECT_EQ(found, "error: out_of_memory") << "after " << left << " buffers";
    ++failures;
    ASSERT_EQ(answers(), expected) << "the request after a failure";
  }
  EXPECT_GT(failures, 10);
  EXPECT_LT(failures, 200);
  EXPECT_EQ(backends_made_, 1) << "lack of memory does not cost the device";
}

TEST_F(ModelFailures, LostDeviceIsRebuilt) {
  const std::string expected = answers();
  plan_->reads_left = 0;
  EXPECT_EQ(answers(), "error: device_lost");
  plan_->reads_left = -1;
  EXPECT_EQ(answers(), expected);
  EXPECT_EQ(backends_made_, 2);
}

TEST_F(ModelFailures, PrefixOfALostDeviceIsRefused) {
  auto prefix = model_->prefill("Hello, where is my parcel?");
  ASSERT_TRUE(prefix.ok());
  Question question{"q", QuestionKind::choice, "", {{"calm", std::nullopt}, {"angry", std::nullopt}}};
  const auto before = model_->evaluate(*prefix, std::span(&question, 1));
  ASSERT_TRUE(before.ok()) << before.error().to_line();
  plan_->reads_left = 0;
  const auto lost = model_->evaluate(*prefix, std::span(&question, 1));
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::device_lost);
  plan_->reads_left = -1;
  const auto stale = model_->evaluate(*prefix, std::span(&question, 1));
  ASSERT_FALSE(stale.ok());
  EXPECT_NE(stale.error().message.find("read the state again"), std::string::npos) << stale.error().to_line();
  const auto again = model_->prefill("Hello, where is my parcel?");
  ASSERT_TRUE(again.ok());
  const auto after = model_->evaluate(*again, std::span(&question, 1));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ((*after)[0].probabilities, (*before)[0].probabilities);
}

TEST_F(ModelFailures, MemoryPlanIsRefusedEarly) {
  ModelOptions options;
  options.model = std::string(CHORUS_MODELS) + "/kev-mini";
  options.base = std::string(CHORUS_MODELS) + "/kev-mini-base";
  options.device = DeviceChoice::cpu;
  options.memory_bytes_max = 1 << 20;
  const auto model = Model::load(options);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(model.error().message.find("1.0 MiB"), std::string::npos) << model.error().to_line();
}

}  // namespace
}  // namespace chorus
