// A backend that works until told to fail, for tests of what comes after a failure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "compute/backend.h"

namespace chorus {

// Shared between the test and the backends it causes to be made.
struct FailurePlan {
  // Calls of create_buffer (out_of_memory) and read (device_lost) that still succeed; negative: all.
  int buffers_left = -1;
  int reads_left = -1;
  bool times_fail = false;                  // take_kernel_times
  std::map<std::string, int> weights_made;  // how often, by name
  // Called before every read and before every batch, for failures that come from the device itself.
  std::function<void()> before_read, before_batch;
};

class FailingBackend final : public compute::Backend {
 public:
  FailingBackend(std::unique_ptr<compute::Backend> inner, std::shared_ptr<FailurePlan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}

  const compute::BackendInfo& info() const override { return inner_->info(); }
  Result<std::shared_ptr<compute::Buffer>> create_buffer(uint64_t bytes, std::string_view label) override {
    if (plan_->buffers_left == 0) return make_error(ErrorCode::out_of_memory, "planned failure: no memory for " + std::string(label));
    if (plan_->buffers_left > 0) --plan_->buffers_left;
    return inner_->create_buffer(bytes, label);
  }
  Status write(compute::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    return inner_->write(buffer, offset, data);
  }
  Status read(const compute::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    if (plan_->before_read) plan_->before_read();
    if (plan_->reads_left == 0) return make_error(ErrorCode::device_lost, "planned failure: the device is gone");
    if (plan_->reads_left > 0) --plan_->reads_left;
    return inner_->read(buffer, offset, data);
  }
  Result<std::shared_ptr<compute::Weight>> create_weight(std::string_view name, uint32_t rows, uint32_t cols, DType dtype,
                                                         const compute::RowSource& source) override {
    ++plan_->weights_made[std::string(name)];
    return inner_->create_weight(name, rows, cols, dtype, source);
  }
  Result<std::shared_ptr<compute::ExpertBank>> create_expert_bank(const compute::ExpertShape& shape, uint32_t slots,
                                                                  std::string_view label) override {
    return inner_->create_expert_bank(shape, slots, label);
  }
  Status write_expert(compute::ExpertBank& bank, uint32_t slot, std::span<const std::byte> record) override {
    return inner_->write_expert(bank, slot, record);
  }
  std::byte* expert_memory(compute::ExpertBank& bank, uint32_t slot) override { return inner_->expert_memory(bank, slot); }
  Result<std::unique_ptr<compute::Batch>> begin_batch() override {
    if (plan_->before_batch) plan_->before_batch();
    return inner_->begin_batch();
  }
  uint64_t weight_bytes(uint32_t rows, uint32_t cols, DType dtype) const override { return inner_->weight_bytes(rows, cols, dtype); }
  uint64_t bytes_in_use() const override { return inner_->bytes_in_use(); }
  uint64_t bytes_peak() const override { return inner_->bytes_peak(); }
  std::vector<compute::Fallback> fallbacks() const override { return inner_->fallbacks(); }
  std::vector<std::string> variants(std::string_view operation) const override { return inner_->variants(operation); }
  Status force_variant(std::string_view operation, std::string_view variant) override { return inner_->force_variant(operation, variant); }
  Result<compute::DevicePeak> measure_peak() override { return inner_->measure_peak(); }
  Result<std::vector<compute::KernelTime>> take_kernel_times() override {
    if (plan_->times_fail) return make_error(ErrorCode::internal, "planned failure: no times");
    return inner_->take_kernel_times();
  }

 private:
  std::unique_ptr<compute::Backend> inner_;
  std::shared_ptr<FailurePlan> plan_;
};

}  // namespace chorus
