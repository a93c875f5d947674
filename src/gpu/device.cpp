// The device: checks of arguments, then recording. The parts are in core, pipelines, recorder, readback and timestamps.
#include "gpu/device.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "base/hash.h"
#include "gpu/adapter_report.h"
#include "gpu/adapters.h"
#include "gpu/core.h"
#include "gpu/pipelines.h"
#include "gpu/readback.h"
#include "gpu/recorder.h"
#include "gpu/upload.h"

namespace chorus::gpu {
namespace {

// Data comes back in slices, so that staging memory stays small whatever the size of a buffer.
constexpr uint64_t kReadSliceBytes = 16ull << 20;
constexpr uint64_t kReadStagingBytesMin = 64ull << 10;

std::string count_text(uint64_t value) { return std::to_string(value); }

class DeviceImpl final : public Device {
 public:
  DeviceImpl(std::shared_ptr<Core> core) : core_(std::move(core)), pipelines_(*core_), recorder_(core_), uploader_(*core_) {}
  ~DeviceImpl() override { recorder_.discard(); }

  const Capabilities& capabilities() const override { return core_->capabilities; }
  Result<std::shared_ptr<Storage>> create_storage(uint64_t bytes, std::string_view label) override;
  Status write(const std::shared_ptr<Storage>& storage, uint64_t offset, std::span<const std::byte> data) override;
  Status warm(const ShaderSource& shader, std::span<const Access> access) override;
  Status dispatch(const Dispatch& dispatch) override;
  Status copy(const std::shared_ptr<const Storage>& source, uint64_t source_offset, const std::shared_ptr<Storage>& target,
              uint64_t target_offset, uint64_t bytes) override;
  Status submit() override;
  void discard() override { recorder_.discard(); }
  uint64_t recording() const override { return recorder_.recording(); }
  Status read(const std::shared_ptr<const Storage>& storage, uint64_t offset, std::span<std::byte> data) override;
  Status wait_idle() override;
  uint64_t bytes_in_use() const override { return core_->bytes_in_use(); }
  uint64_t bytes_peak() const override { return core_->bytes_peak(); }
  uint64_t dispatches() const override { return dispatches_; }
  Result<std::vector<DispatchTime>> take_times() override;
  void force_loss() override { core_->device.ForceLoss(wgpu::DeviceLostReason::Unknown, "loss forced by a test"); }

 private:
  Result<const StorageImpl*> checked(const std::shared_ptr<const Storage>& storage, std::string_view what) const;
  Status check_range(const StorageImpl& storage, uint64_t offset, uint64_t bytes, std::string_view what) const;
  Status check_dispatch(const Dispatch& dispatch, const std::string& name) const;
  Status check_binding(const Binding& binding, size_t index, const std::string& name) const;
  Status check_aliases(const Dispatch& dispatch, const std::string& name) const;
  Status read_slice(const std::shared_ptr<const StorageImpl>& storage, uint64_t offset, std::span<std::byte> data);

  std::shared_ptr<Core> core_;
  Pipelines pipelines_;
  Recorder recorder_;
  Uploader uploader_;
  wgpu::Buffer read_staging_;
  uint64_t read_staging_bytes_ = 0;
  std::vector<Access> access_;  // scratch of dispatch()
  uint64_t dispatches_ = 0;
};

Result<const StorageImpl*> DeviceImpl::checked(const std::shared_ptr<const Storage>& storage, std::string_view what) const {
  const auto* impl = static_cast<const StorageImpl*>(storage.get());
  if (impl == nullptr) return make_error(ErrorCode::invalid_argument, "webgpu: " + std::string(what) + ": no storage given");
  if (impl->core() != core_.get()) {
    return make_error(ErrorCode::invalid_argument, "webgpu: " + std::string(what) + ": the storage belongs to another device");
  }
  return impl;
}

Status DeviceImpl::check_range(const StorageImpl& storage, uint64_t offset, uint64_t bytes, std::string_view what) const {
  if (offset % 4 != 0 || bytes % 4 != 0) {
    return make_error(ErrorCode::invalid_argument, "webgpu: " + std::string(what) + ": offset " + count_text(offset) + " and size " +
                                                       count_text(bytes) + " must be multiples of 4");
  }
  if (offset > storage.allocated() || bytes > storage.allocated() - offset) {
    return make_error(ErrorCode::invalid_argument, "webgpu: " + std::string(what) + ": bytes " + count_text(offset) + " to " +
                                                       count_text(offset + bytes) + " of a storage of " + count_text(storage.bytes()));
  }
  return {};
}

Result<std::shared_ptr<Storage>> DeviceImpl::create_storage(uint64_t bytes, std::string_view label) {
  if (bytes > core_->capabilities.buffer_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "webgpu: buffer " + std::string(label) + ": " + count_text(bytes) +
                                                     " bytes asked, the adapter allows " +
                                                     count_text(core_->capabilities.buffer_bytes_max));
  }
  // Whole vec4s, and never empty: an empty range cannot be bound.
  const uint64_t allocated = std::max<uint64_t>(16, (bytes + 15) / 16 * 16);
  CHORUS_ASSIGN(
      wgpu::Buffer buffer,
      core_->create_buffer(wgpu::BufferUsage::Storage | wgpu::BufferUsage::CopySrc | wgpu::BufferUsage::CopyDst, allocated, label));
  return std::shared_ptr<Storage>(std::make_shared<StorageImpl>(core_, std::move(buffer), bytes, allocated));
}

Status DeviceImpl::write(const std::shared_ptr<Storage>& storage, uint64_t offset, std::span<const std::byte> data) {
  CHORUS_TRY(core_->errors.take());
  CHORUS_ASSIGN(const StorageImpl* impl, checked(storage, "write"));
  CHORUS_TRY(check_range(*impl, offset, data.size(), "write"));
  if (data.empty()) return {};
  ErrorScopes scopes(core_->instance, core_->device, core_->errors);
  if (data.size() <= Uploader::kSmallBytes) {
    core_->queue.WriteBuffer(impl->buffer(), offset, data.data(), data.size());
  } else {
    CHORUS_TRY(uploader_.write(impl->buffer(), offset, data));
  }
  return scopes.finish("write " + count_text(data.size()) + " bytes");
}

Status DeviceImpl::warm(const ShaderSource& shader, std::span<const Access> access) {
  CHORUS_TRY(core_->errors.take());
  CHORUS_TRY(pipelines_.get(shader, access));
  return {};
}

Status DeviceImpl::check_binding(const Binding& binding, size_t index, const std::string& name) const {
  CHORUS_ASSIGN(const StorageImpl* impl, checked(binding.storage, name));
  // Texts are made only on failure: this runs for every binding of every dispatch.
  const auto where = [&] { return "webgpu: kernel " + name + ": storage binding " + count_text(index) + ": "; };
  const uint64_t alignment = core_->capabilities.storage_offset_alignment;
  if (binding.offset % alignment != 0) {
    return make_error(ErrorCode::internal,
                      where() + "offset " + count_text(binding.offset) + " is not a multiple of " + count_text(alignment));
  }
  if (binding.offset >= impl->allocated() || binding.size > impl->allocated() - binding.offset) {
    return make_error(ErrorCode::internal, where() + "bytes " + count_text(binding.offset) + " to " +
                                               count_text(binding.offset + binding.size) + " of a storage of " + count_text(impl->bytes()));
  }
  const uint64_t size = binding.size != 0 ? binding.size : impl->allocated() - binding.offset;
  if (size > core_->capabilities.storage_binding_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, where() + count_text(size) + " bytes, the adapter allows " +
                                                     count_text(core_->capabilities.storage_binding_bytes_max));
  }
  if (size % 4 != 0) return make_error(ErrorCode::internal, where() + "size " + count_text(size) + " is not a multiple of 4");
  return {};
}

Status DeviceImpl::check_dispatch(const Dispatch& dispatch, const std::string& name) const {
  const uint32_t limit = core_->capabilities.workgroups_per_dimension_max;
  if (dispatch.grid.x > limit || dispatch.grid.y > limit || dispatch.grid.z > limit) {
    return make_error(ErrorCode::limit_exceeded, "webgpu: kernel " + name + ": grid " + count_text(dispatch.grid.x) + " x " +
                                                     count_text(dispatch.grid.y) + " x " + count_text(dispatch.grid.z) +
                                                     ", the adapter allows " + count_text(limit) + " per dimension");
  }
  if (dispatch.params.size() > kParamsSlotBytes || dispatch.params.size() % 16 != 0) {
    return make_error(ErrorCode::internal, "webgpu: kernel " + name + ": parameters of " + count_text(dispatch.params.size()) +
                                               " bytes, expected a multiple of 16 up to " + count_text(kParamsSlotBytes));
  }
  for (size_t index = 0; index < dispatch.bindings.size(); ++index) CHORUS_TRY(check_binding(dispatch.bindings[index], index, name));
  return check_aliases(dispatch, name);
}

// What Dawn's validation would refuse: a storage bound both for reading and for writing, or for writing in two ranges that overlap. The
// fast toggles run without that validation.
Status DeviceImpl::check_aliases(const Dispatch& dispatch, const std::string& name) const {
  const auto end_of = [](const Binding& binding) {
    return binding.size != 0 ? binding.offset + binding.size : static_cast<const StorageImpl&>(*binding.storage).allocated();
  };
  for (size_t i = 0; i < dispatch.bindings.size(); ++i) {
    const Binding& one = dispatch.bindings[i];
    if (one.access != Access::read_write) continue;
    for (size_t j = 0; j < dispatch.bindings.size(); ++j) {
      const Binding& other = dispatch.bindings[j];
      if (i == j || one.storage != other.storage) continue;
      if (other.access == Access::read_write && (one.offset >= end_of(other) || other.offset >= end_of(one))) continue;
      return make_error(ErrorCode::internal, "webgpu: kernel " + name + ": storage bindings " + count_text(i) + " and " + count_text(j) +
                                                 ": expected two storages, or ranges apart where both are written, found one storage");
    }
  }
  return {};
}

Status DeviceImpl::dispatch(const Dispatch& dispatch) {
  CHORUS_TRY(core_->errors.take());
  if (dispatch.shader == nullptr) return make_error(ErrorCode::internal, "webgpu: a dispatch names no shader (variant not built in?)");
  access_.clear();
  for (const Binding& binding : dispatch.bindings) access_.push_back(binding.access);
  CHORUS_ASSIGN(const Pipeline* pipeline, pipelines_.get(*dispatch.shader, access_));
  CHORUS_TRY(check_dispatch(dispatch, pipeline->name));
  if (dispatch.grid.x == 0 || dispatch.grid.y == 0 || dispatch.grid.z == 0) return {};
  ++dispatches_;
  return recorder_.dispatch(*pipeline, dispatch);
}

Status DeviceImpl::copy(const std::shared_ptr<const Storage>& source, uint64_t source_offset, const std::shared_ptr<Storage>& target,
                        uint64_t target_offset, uint64_t bytes) {
  CHORUS_TRY(core_->errors.take());
  CHORUS_ASSIGN(const StorageImpl* from, checked(source, "copy source"));
  CHORUS_ASSIGN(const StorageImpl* to, checked(target, "copy target"));
  CHORUS_TRY(check_range(*from, source_offset, bytes, "copy source"));
  CHORUS_TRY(check_range(*to, target_offset, bytes, "copy target"));
  if (from == to) return make_error(ErrorCode::invalid_argument, "webgpu: copy: source and target are the same storage");
  if (bytes == 0) return {};
  recorder_.copy(std::static_pointer_cast<const StorageImpl>(source), source_offset, std::static_pointer_cast<const StorageImpl>(target),
                 target_offset, bytes);
  return {};
}

Status DeviceImpl::submit() {
  CHORUS_TRY(core_->errors.take());
  return recorder_.submit();
}

Status DeviceImpl::read_slice(const std::shared_ptr<const StorageImpl>& storage, uint64_t offset, std::span<std::byte> data) {
  if (read_staging_bytes_ < data.size()) {
    if (read_staging_) read_staging_.Destroy();
    core_->release(std::exchange(read_staging_bytes_, 0));
    read_staging_ = nullptr;
    const uint64_t bytes = std::max<uint64_t>(kReadStagingBytesMin, data.size());
    CHORUS_ASSIGN(read_staging_, core_->create_buffer(wgpu::BufferUsage::MapRead | wgpu::BufferUsage::CopyDst, bytes, "readback"));
    read_staging_bytes_ = bytes;
  }
  recorder_.copy_out(storage, offset, read_staging_, data.size());
  CHORUS_TRY(recorder_.submit());
  return read_mapped(*core_, read_staging_, data);
}

Status DeviceImpl::read(const std::shared_ptr<const Storage>& storage, uint64_t offset, std::span<std::byte> data) {
  CHORUS_TRY(core_->errors.take());
  CHORUS_ASSIGN(const StorageImpl* impl, checked(storage, "read"));
  CHORUS_TRY(check_range(*impl, offset, data.size(), "read"));
  if (data.empty()) return wait_idle();
  for (uint64_t done = 0; done < data.size();) {
    const uint64_t slice = std::min<uint64_t>(kReadSliceBytes, data.size() - done);
    CHORUS_TRY(read_slice(std::static_pointer_cast<const StorageImpl>(storage), offset + done, data.subspan(done, slice)));
    done += slice;
  }
  return {};
}

Status DeviceImpl::wait_idle() {
  CHORUS_TRY(submit());
  return core_->wait_for_queue();
}

Result<std::vector<DispatchTime>> DeviceImpl::take_times() {
  if (!recorder_.timestamps().enabled()) return std::vector<DispatchTime>{};
  return recorder_.timestamps().take();
}

// One directory per adapter, driver and Dawn build: blobs of another of these are never even looked at.
std::unique_ptr<BlobCache> make_blob_cache(const Capabilities& capabilities, const std::string& directory) {
  if (directory.empty()) return nullptr;
  const std::string identity = capabilities.name + "\n" + capabilities.backend + "\n" + capabilities.driver + "\n" + dawn_build_id();
  Result<std::string> digest = sha256_hex(std::as_bytes(std::span<const char>(identity)));
  if (!digest) return nullptr;
  return std::make_unique<BlobCache>(std::filesystem::path(directory) / digest->substr(0, 16));
}

// The C form: the C++ wrapper of this structure does not compile with callbacks (Dawn 20260909).
WGPUDawnCacheDeviceDescriptor blob_cache_descriptor(BlobCache* cache) {
  WGPUDawnCacheDeviceDescriptor descriptor = WGPU_DAWN_CACHE_DEVICE_DESCRIPTOR_INIT;
  descriptor.isolationKey = {"chorus", WGPU_STRLEN};
  descriptor.dawnLoadCacheDataCallbackInfo.callback = [](size_t key_bytes, const uint8_t* key, size_t value_bytes, uint8_t* value,
                                                         void* blobs, void*) -> size_t {
    return static_cast<BlobCache*>(blobs)->load(std::as_bytes(std::span(key, key_bytes)),
                                                std::as_writable_bytes(std::span(value, value == nullptr ? 0 : value_bytes)));
  };
  descriptor.dawnLoadCacheDataCallbackInfo.userdata1 = cache;
  descriptor.dawnStoreCacheDataCallbackInfo.callback = [](size_t key_bytes, const uint8_t* key, size_t value_bytes, const uint8_t* value,
                                                          void* blobs, void*) {
    static_cast<BlobCache*>(blobs)->store(std::as_bytes(std::span(key, key_bytes)), std::as_bytes(std::span(value, value_bytes)));
  };
  descriptor.dawnStoreCacheDataCallbackInfo.userdata1 = cache;
  return descriptor;
}

// Chains the callbacks of errors and loss, and asks the adapter for a device.
Status request_device(Core& core, const wgpu::Adapter& adapter, Toggles& toggles, const DeviceOptions& options) {
  wgpu::Limits limits;
  adapter.GetLimits(&limits);
  const std::vector<wgpu::FeatureName> features = wanted_features(adapter, options);
  WGPUDawnCacheDeviceDescriptor cache = blob_cache_descriptor(core.blob_cache.get());
  cache.chain.next = reinterpret_cast<WGPUChainedStruct*>(toggles.chain());
  wgpu::DeviceDescriptor descriptor;
  descriptor.nextInChain = core.blob_cache ? reinterpret_cast<const wgpu::ChainedStruct*>(&cache) : toggles.chain();
  descriptor.label = "chorus";
  descriptor.requiredFeatureCount = features.size();
  descriptor.requiredFeatures = features.data();
  descriptor.requiredLimits = &limits;
  descriptor.SetDeviceLostCallback(
      wgpu::CallbackMode::AllowSpontaneous,
      [](const wgpu::Device&, wgpu::DeviceLostReason, wgpu::StringView message, DeviceErrors* errors) {
        errors->report_loss(std::string_view(message));
      },
      &core.errors);
  descriptor.SetUncapturedErrorCallback([](const wgpu::Device&, wgpu::ErrorType type, wgpu::StringView message,
                                           DeviceErrors* errors) { errors->report(type, std::string_view(message)); },
                                        &core.errors);
  std::string failure;
  const wgpu::Future future = adapter.RequestDevice(&descriptor, wgpu::CallbackMode::WaitAnyOnly,
                                                    [&](wgpu::RequestDeviceStatus status, wgpu::Device device, wgpu::StringView message) {
                                                      if (status == wgpu::RequestDeviceStatus::Success) core.device = std::move(device);
                                                      failure = one_line(std::string_view(message));
                                                    });
  // Native Dawn answers this request before it returns; the callback runs inside the wait.
  const bool answered = wait_for(core.instance, future, 60);
  if (!answered || !core.device) {
    return make_error(ErrorCode::unsupported, "webgpu: adapter " + core.capabilities.name + " gave no device: " + failure);
  }
  core.device.SetLoggingCallback([](wgpu::LoggingType, wgpu::StringView message,
                                    LogSink* log) { log_to(*log, LogLevel::debug, "dawn: " + one_line(std::string_view(message))); },
                                 &core.log);
  core.queue = core.device.GetQueue();
  return {};
}

}  // namespace

Result<std::unique_ptr<Device>> Device::create(const DeviceOptions& options, const LogSink& log) {
  keep_drivers_loaded();
  Toggles toggles(options.toggles);
  auto core = std::make_shared<Core>();
  core->log = log;
  core->native_instance = make_instance(toggles, &core->log);
  core->instance = wgpu::Instance(core->native_instance->Get());
  if (!core->instance) return make_error(ErrorCode::internal, "webgpu: Dawn gave no instance");
  CHORUS_ASSIGN(FoundAdapter chosen, choose_adapter(find_adapters(*core->native_instance, toggles), options));
  CHORUS_TRY(check_required(chosen.capabilities));
  core->capabilities = std::move(chosen.capabilities);
  apply_caps(core->capabilities, options);
  core->memory_bytes_cap = options.memory_bytes_cap;
  core->fake_out_of_memory_bytes = options.fake_out_of_memory_bytes;
  core->wait_seconds_max = options.wait_timeout_seconds;
  core->blob_cache = make_blob_cache(core->capabilities, options.cache_directory);
  CHORUS_TRY(request_device(*core, chosen.adapter, toggles, options));
  log_to(log, LogLevel::info,
         "webgpu: adapter " + core->capabilities.name + " (" + core->capabilities.backend + ", " + core->capabilities.driver + ")");
  return std::unique_ptr<Device>(std::make_unique<DeviceImpl>(std::move(core)));
}

}  // namespace chorus::gpu
