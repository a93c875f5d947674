#include "backends/webgpu/webgpu_backend.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "backends/webgpu/expert_bank.h"
#include "backends/webgpu/operations.h"
#include "backends/webgpu/weight_upload.h"
#include "compute/check.h"
#include "kernels/common/webgpu_context.h"
#include "kernels/peak/peak_webgpu.h"

namespace chorus::backends {
namespace {

using kernels::storage_of;

class GrowingScratch final : public kernels::ScratchPool {
 public:
  explicit GrowingScratch(gpu::Device& device) : device_(device) {}
  Result<std::shared_ptr<gpu::Storage>> acquire(std::string_view slot, uint64_t bytes) override {
    const auto found = slots_.find(slot);
    if (found != slots_.end() && found->second->bytes() >= bytes) return found->second;
    // The smaller one goes first (work recorded with it keeps it alive), so that both are never counted when none is in use.
    if (found != slots_.end()) slots_.erase(found);
    CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> storage, device_.create_storage(bytes, "scratch " + std::string(slot)));
    slots_.emplace(slot, storage);
    return storage;
  }

 private:
  gpu::Device& device_;
  std::map<std::string, std::shared_ptr<gpu::Storage>, std::less<>> slots_;
};

class WebgpuBatch final : public compute::Batch {
 public:
  explicit WebgpuBatch(kernels::WebgpuContext context) : context_(context) {}
  ~WebgpuBatch() override {
    if (recorded_ && context_.device.recording() == recording_) context_.device.discard();
  }
  WebgpuBatch(const WebgpuBatch&) = delete;
  WebgpuBatch& operator=(const WebgpuBatch&) = delete;

  Status embed(const compute::EmbedArgs& args) override { return run(args); }
  Status linear(const compute::LinearArgs& args) override { return run(args); }
  Status rms_norm(const compute::RmsNormArgs& args) override { return run(args); }
  Status gated_rms_norm(const compute::GatedRmsNormArgs& args) override { return run(args); }
  Status swiglu(const compute::SwigluArgs& args) override { return run(args); }
  Status causal_conv(const compute::CausalConvArgs& args) override { return run(args); }
  Status gated_delta(const compute::GatedDeltaArgs& args) override { return run(args); }
  Status qk_norm_rope(const compute::QkNormRopeArgs& args) override { return run(args); }
  Status attention(const compute::AttentionArgs& args) override { return run(args); }
  Status gather_rows(const compute::GatherRowsArgs& args) override { return run(args); }
  Status pointer_scores(const compute::PointerScoresArgs& args) override { return run(args); }
  Status segment_softmax(const compute::SegmentSoftmaxArgs& args) override { return run(args); }
  Status layer_norm(const compute::LayerNormArgs& args) override { return run(args); }
  Status rope(const compute::RopeArgs& args) override { return run(args); }
  Status head_linear(const compute::HeadLinearArgs& args) override { return run(args); }
  Status argmax(const compute::ArgmaxArgs& args) override { return run(args); }
  Status attend(const compute::AttendArgs& args) override { return run(args); }
  Status select_keys(const compute::SelectKeysArgs& args) override { return run(args); }
  Status router(const compute::RouterArgs& args) override { return run(args); }
  Status expert_ffn(const compute::ExpertFfnArgs& args) override { return run(args); }
  Status combine_routes(const compute::CombineRoutesArgs& args) override { return run(args); }
  Status sample(const compute::SampleArgs& args) override { return run(args); }
  Status copy(const compute::CopyArgs& args) override {
    CHORUS_TRY(compute::check(args));
    note_recording();
    return context_.device.copy(storage_of(args.source), args.source_offset, storage_of(args.target), args.target_offset, args.bytes);
  }
  // A device that takes times reads them submit by submit: not more of these than it takes.
  Status flush() override { return context_.device.capabilities().timestamps ? Status() : submit(); }
  Status submit() override {
    recorded_ = false;
    Status sent = context_.device.submit();
    if (!sent.ok()) context_.device.discard();  // an error that came first leaves the recording open; the next batch must not run it
    return sent;
  }

 private:
  template <typename Args>
  Status run(const Args& args) {
    CHORUS_TRY(compute::check(args));
    note_recording();
    return record(context_, args);
  }

  void note_recording() {
    recorded_ = true;
    recording_ = context_.device.recording();
  }

  kernels::WebgpuContext context_;
  bool recorded_ = false;
  uint64_t recording_ = 0;  // the device's; a read may have submitted it since
};

class WebgpuBackend final : public compute::Backend {
 public:
  explicit WebgpuBackend(std::unique_ptr<gpu::Device> device) : device_(std::move(device)), scratch_(*device_) {
    const gpu::Capabilities& capabilities = device_->capabilities();
    info_.kind = "webgpu";
    info_.device = capabilities.name;
    info_.driver = capabilities.driver;
    info_.software = capabilities.software;
    info_.binding_bytes_max = capabilities.storage_binding_bytes_max;
    info_.buffer_bytes_max = capabilities.buffer_bytes_max;
  }

  const compute::BackendInfo& info() const override { return info_; }
  Result<std::shared_ptr<compute::Buffer>> create_buffer(uint64_t bytes, std::string_view label) override {
    CHORUS_ASSIGN(std::shared_ptr<gpu::Storage> storage, device_->create_storage(bytes, label));
    return std::shared_ptr<compute::Buffer>(std::make_shared<kernels::WebgpuBuffer>(std::move(storage)));
  }
  Status write(compute::Buffer& buffer, uint64_t offset, std::span<const std::byte> data) override {
    return device_->write(storage_of(&buffer), offset, data);
  }
  Status read(const compute::Buffer& buffer, uint64_t offset, std::span<std::byte> data) override {
    return device_->read(storage_of(&buffer), offset, data);
  }
  Result<std::shared_ptr<compute::Weight>> create_weight(std::string_view name, uint32_t rows, uint32_t cols, DType dtype,
                                                         const compute::RowSource& source) override {
    CHORUS_ASSIGN(auto weight, upload_weight(*device_, name, rows, cols, dtype, source));
    return std::shared_ptr<compute::Weight>(std::move(weight));
  }
  Result<std::shared_ptr<compute::ExpertBank>> create_expert_bank(const compute::ExpertShape& shape, uint32_t slots,
                                                                  std::string_view label) override {
    CHORUS_TRY(compute::check_bank(shape, slots));
    CHORUS_ASSIGN(auto bank, create_webgpu_expert_bank(*device_, shape, slots, label));
    return std::shared_ptr<compute::ExpertBank>(std::move(bank));
  }
  Status write_expert(compute::ExpertBank& bank, uint32_t slot, std::span<const std::byte> record) override {
    CHORUS_TRY(compute::check_expert(bank, slot, record.size()));
    return write_webgpu_expert(*device_, static_cast<const kernels::WebgpuExpertBank&>(bank), slot, record);
  }
  Result<std::unique_ptr<compute::Batch>> begin_batch() override {
    return std::unique_ptr<compute::Batch>(std::make_unique<WebgpuBatch>(kernels::WebgpuContext{*device_, scratch_, forced_, fallbacks_}));
  }

  uint64_t weight_bytes(uint32_t rows, uint32_t cols, DType dtype) const override {
    return weight_layout(rows, cols, dtype, info_.binding_bytes_max).bytes;
  }
  uint64_t bytes_in_use() const override { return device_->bytes_in_use(); }
  uint64_t bytes_peak() const override { return device_->bytes_peak(); }
  uint64_t dispatches() const override { return device_->dispatches(); }
  std::vector<compute::Fallback> fallbacks() const override { return fallbacks_; }

  std::vector<std::string> variants(std::string_view operation) const override {
    for (const Operation& entry : webgpu_operations()) {
      if (entry.name == operation) return entry.variants(device_->capabilities());
    }
    return {};
  }
  Status force_variant(std::string_view operation, std::string_view variant) override;

  Result<compute::DevicePeak> measure_peak() override { return kernels::measure_webgpu_peak(*device_); }

  Result<std::vector<compute::KernelTime>> take_kernel_times() override {
    CHORUS_ASSIGN(const std::vector<gpu::DispatchTime> times, device_->take_times());
    std::vector<compute::KernelTime> result;
    for (const gpu::DispatchTime& time : times) result.push_back({time.kernel, time.calls, time.milliseconds});
    return result;
  }

 private:
  std::unique_ptr<gpu::Device> device_;
  GrowingScratch scratch_;
  compute::BackendInfo info_;
  std::map<std::string, std::string, std::less<>> forced_;
  std::vector<compute::Fallback> fallbacks_;
};

Status WebgpuBackend::force_variant(std::string_view operation, std::string_view variant) {
  if (variant.empty()) {
    if (const auto found = forced_.find(operation); found != forced_.end()) forced_.erase(found);
    return {};
  }
  const std::vector<std::string> known = variants(operation);
  if (std::find(known.begin(), known.end(), variant) == known.end()) {
    return make_error(ErrorCode::not_found,
                      "operation " + std::string(operation) + " has no variant " + std::string(variant) + " on " + info_.device);
  }
  forced_.insert_or_assign(std::string(operation), std::string(variant));
  return {};
}

}  // namespace

Result<std::unique_ptr<compute::Backend>> create_webgpu_backend(const gpu::DeviceOptions& options, LogSink log) {
  CHORUS_ASSIGN(std::unique_ptr<gpu::Device> device, gpu::Device::create(options, log));
  return create_webgpu_backend(std::move(device));
}

std::unique_ptr<compute::Backend> create_webgpu_backend(std::unique_ptr<gpu::Device> device) {
  return std::make_unique<WebgpuBackend>(std::move(device));
}

}  // namespace chorus::backends
