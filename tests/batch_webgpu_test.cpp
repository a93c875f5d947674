// What a batch of the WebGPU backend leaves behind when it is sent in pieces, read from, or dropped.
#include <gtest/gtest.h>

#include "selftest/case_tools.h"
#include "webgpu_test_device.h"

namespace chorus {
namespace {

constexpr uint64_t kBytes = 64;

class Batches : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = tests::shared_webgpu_backend();
    ASSERT_NE(backend_, nullptr);
    const auto source = selftest::upload(*backend_, std::vector<float>(kBytes / 4, 7.0f));
    ASSERT_TRUE(source.ok());
    source_ = *source;
    for (auto* target : {&one_, &two_}) {
      const auto made = backend_->create_buffer(kBytes, "target");
      ASSERT_TRUE(made.ok());
      *target = *made;
    }
  }
  std::unique_ptr<compute::Batch> begin() {
    auto batch = backend_->begin_batch();
    EXPECT_TRUE(batch.ok());
    return batch.ok() ? std::move(*batch) : nullptr;
  }
  Status fill(compute::Batch& batch, const std::shared_ptr<compute::Buffer>& target) {
    return batch.copy({source_.get(), 0, target.get(), 0, kBytes});
  }
  float first_of(const std::shared_ptr<compute::Buffer>& buffer) {
    const auto values = selftest::download(*backend_, *buffer);
    EXPECT_TRUE(values.ok());
    return values.ok() ? (*values)[0] : -1;
  }

  compute::Backend* backend_ = nullptr;
  std::shared_ptr<compute::Buffer> source_, one_, two_;
};

TEST_F(Batches, WhatWasFlushedStaysWhenTheRestIsDropped) {
  {
    const auto batch = begin();
    ASSERT_TRUE(fill(*batch, one_).ok());
    ASSERT_TRUE(batch->flush().ok());
    ASSERT_TRUE(fill(*batch, two_).ok());
  }
  EXPECT_EQ(first_of(one_), 7);
  EXPECT_EQ(first_of(two_), 0);
}

TEST_F(Batches, AReadSubmitsWhatAnOpenBatchHasRecorded) {
  const auto batch = begin();
  ASSERT_TRUE(fill(*batch, one_).ok());
  EXPECT_EQ(first_of(one_), 7);
}

TEST_F(Batches, ABatchThatWasReadFromDropsNothingOfTheNext) {
  auto before = begin();
  ASSERT_TRUE(fill(*before, one_).ok());
  EXPECT_EQ(first_of(one_), 7);
  const auto batch = begin();
  ASSERT_TRUE(fill(*batch, two_).ok());
  before.reset();
  ASSERT_TRUE(batch->submit().ok());
  EXPECT_EQ(first_of(two_), 7);
}

}  // namespace
}  // namespace chorus
