// A WebGPU device that is really lost, at different moments of a request to the public Model: an error for that call, and the next request
// runs on a new device with the same answers.
#include <gtest/gtest.h>

#include <string>

#include "backends/webgpu/webgpu_backend.h"
#include "chorus/chorus.h"
#include "formats/json.h"
#include "model/failing_backend.h"
#include "runtime/model.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

class ModelLoss : public testing::Test {
 protected:
  void SetUp() override {
    ModelOptions options;
    options.model = std::string(CHORUS_MODELS) + "/kev-mini";
    options.base = std::string(CHORUS_MODELS) + "/kev-mini-base";
    auto model = runtime::load_model(options, [this](const runtime::BackendRequest&) -> Result<runtime::BackendChoice> {
      CHORUS_ASSIGN(std::unique_ptr<gpu::Device> device, gpu::Device::create(tests::test_device_options()));
      device_ = device.get();
      ++devices_made_;
      return runtime::BackendChoice{std::make_unique<FailingBackend>(backends::create_webgpu_backend(std::move(device)), plan_), "test"};
    });
    ASSERT_TRUE(model.ok()) << model.error().to_line();
    model_ = std::move(model).value();
    expected_ = answers();
    ASSERT_EQ(expected_.find("error"), std::string::npos) << expected_;
  }

  // The answers of the response, without the time; or the error's code.
  std::string answers() {
    auto response = model_->system_one_json(
        R"({"state": "Hello, where is my parcel?", "questions": {"q": {"type": "choice", "criteria": {"calm": null, "angry": null}}}})");
    if (!response.ok()) return "error: " + std::string(error_code_name(response.error().code));
    auto parsed = formats::parse_json(*response);
    EXPECT_TRUE(parsed.ok());
    return formats::json_dumps(*parsed->find("answers"));
  }

  // The device is lost at the `call`-th time that `hook` is called.
  void lose_at(std::function<void()>& hook, int call) {
    hook = [this, call, seen = 0]() mutable {
      if (++seen == call) device_->force_loss();
    };
  }

  std::shared_ptr<FailurePlan> plan_ = std::make_shared<FailurePlan>();
  gpu::Device* device_ = nullptr;
  int devices_made_ = 0;
  std::string expected_;
  std::unique_ptr<Model> model_;
};

TEST_F(ModelLoss, BetweenRequests) {
  device_->force_loss();
  EXPECT_EQ(answers(), "error: device_lost");
  EXPECT_EQ(answers(), expected_);
  EXPECT_EQ(devices_made_, 2);
}

TEST_F(ModelLoss, BeforeThePrefixAndBeforeTheQuestions) {
  for (int batch : {1, 2}) {
    lose_at(plan_->before_batch, batch);
    EXPECT_EQ(answers(), "error: device_lost") << "lost before batch " << batch;
    plan_->before_batch = nullptr;
    EXPECT_EQ(answers(), expected_);
  }
  EXPECT_EQ(devices_made_, 3);
}

TEST_F(ModelLoss, WithWorkInFlight) {
  lose_at(plan_->before_read, 1);
  EXPECT_EQ(answers(), "error: device_lost");
  plan_->before_read = nullptr;
  EXPECT_EQ(answers(), expected_);
  EXPECT_EQ(devices_made_, 2);
}

}  // namespace
}  // namespace chorus
