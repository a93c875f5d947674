#include "gpu/recorder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace chorus::gpu {
namespace {

const StorageImpl& impl_of(const Binding& binding) { return static_cast<const StorageImpl&>(*binding.storage); }

}  // namespace

Result<ParamsArena::Slot> ParamsArena::add(std::span<const std::byte> params) {
  const uint32_t block_index = used_ / kSlotsPerBlock;
  if (block_index == blocks_.size()) {
    Block block;
    const uint64_t bytes = uint64_t{kSlotsPerBlock} * kParamsSlotBytes;
    CHORUS_ASSIGN(block.buffer, core_.create_buffer(wgpu::BufferUsage::Uniform | wgpu::BufferUsage::CopyDst, bytes, "params"));
    block.host.resize(bytes);
    block.id = core_.next_id();
    blocks_.push_back(std::move(block));
  }
  Block& block = blocks_[block_index];
  const uint32_t offset = used_ % kSlotsPerBlock * kParamsSlotBytes;
  if (!params.empty()) std::memcpy(block.host.data() + offset, params.data(), params.size());
  ++used_;
  return Slot{block.id, &block.buffer, offset};
}

void ParamsArena::write_all() {
  uint32_t left = used_;
  for (const Block& block : blocks_) {
    const uint32_t count = std::min(left, kSlotsPerBlock);
    if (count == 0) break;
    core_.queue.WriteBuffer(block.buffer, 0, block.host.data(), size_t{count} * kParamsSlotBytes);
    left -= count;
  }
}

Recorder::Recorder(std::shared_ptr<Core> core) : core_(std::move(core)), params_(*core_), timestamps_(*core_) {}

void Recorder::open_encoder() {
  if (!encoder_) encoder_ = core_->device.CreateCommandEncoder();
}

Status Recorder::open_pass(const Pipeline& pipeline) {
  open_encoder();
  if (pass_ && timestamps_.enabled()) close_pass();  // one pass per dispatch: timestamps stand at the borders of passes
  if (!pass_) {
    wgpu::ComputePassDescriptor descriptor;
    wgpu::PassTimestampWrites writes;
    if (timestamps_.enabled()) {
      CHORUS_ASSIGN(writes, timestamps_.add(pipeline.name));
      descriptor.timestampWrites = &writes;
    }
    pass_ = encoder_.BeginComputePass(&descriptor);
    bound_ = nullptr;
  }
  if (bound_ != &pipeline) pass_.SetPipeline(pipeline.pipeline);
  bound_ = &pipeline;
  return {};
}

void Recorder::close_pass() {
  if (!pass_) return;
  pass_.End();
  pass_ = nullptr;
  bound_ = nullptr;
}

void Recorder::hold(const std::shared_ptr<const Storage>& storage, const StorageImpl& impl) {
  if (impl.recording == recording_) return;
  impl.recording = recording_;
  held_.push_back(storage);
}

Result<const wgpu::BindGroup*> Recorder::bind_group(const Pipeline& pipeline, const Dispatch& dispatch, const ParamsArena::Slot& slot) {
  key_.assign({pipeline.layout->key, slot.block_id});
  for (const Binding& binding : dispatch.bindings) {
    const StorageImpl& storage = impl_of(binding);
    key_.insert(key_.end(), {storage.id(), binding.offset, binding.size != 0 ? binding.size : storage.allocated() - binding.offset});
  }
  BindGroupCache& cache = core_->bind_groups;
  const uint64_t hash = BindGroupCache::hash(key_);
  if (const wgpu::BindGroup* found = cache.find(hash, key_)) return found;

  entries_.assign(dispatch.bindings.size() + 1, {});
  entries_[0].binding = 0;
  entries_[0].buffer = *slot.buffer;
  entries_[0].size = kParamsSlotBytes;
  for (size_t index = 0; index < dispatch.bindings.size(); ++index) {
    wgpu::BindGroupEntry& entry = entries_[index + 1];
    entry.binding = static_cast<uint32_t>(index + 1);
    entry.buffer = impl_of(dispatch.bindings[index]).buffer();
    entry.offset = dispatch.bindings[index].offset;
    entry.size = key_[2 + 3 * index + 2];
  }
  ErrorScopes scopes(core_->instance, core_->device, core_->errors);
  wgpu::BindGroupDescriptor descriptor;
  descriptor.label = wgpu::StringView(pipeline.name);
  descriptor.layout = pipeline.layout->bind_group;
  descriptor.entryCount = entries_.size();
  descriptor.entries = entries_.data();
  wgpu::BindGroup group = core_->device.CreateBindGroup(&descriptor);
  entries_.clear();
  CHORUS_TRY(scopes.finish("bind the buffers of kernel " + pipeline.name));
  const wgpu::BindGroup& kept = cache.insert(hash, key_, std::move(group));
  for (const Binding& binding : dispatch.bindings) cache.note(impl_of(binding).bind_groups, hash);
  return &kept;
}

Status Recorder::dispatch(const Pipeline& pipeline, const Dispatch& dispatch) {
  CHORUS_ASSIGN(const ParamsArena::Slot slot, params_.add(dispatch.params));
  CHORUS_ASSIGN(const wgpu::BindGroup* group, bind_group(pipeline, dispatch, slot));
  for (const Binding& binding : dispatch.bindings) hold(binding.storage, impl_of(binding));
  CHORUS_TRY(open_pass(pipeline));
  pass_.SetBindGroup(0, *group, 1, &slot.offset);
  pass_.DispatchWorkgroups(dispatch.grid.x, dispatch.grid.y, dispatch.grid.z);
  return {};
}

void Recorder::copy(const std::shared_ptr<const StorageImpl>& source, uint64_t source_offset,
                    const std::shared_ptr<const StorageImpl>& target, uint64_t target_offset, uint64_t bytes) {
  open_encoder();
  close_pass();
  hold(source, *source);
  hold(target, *target);
  encoder_.CopyBufferToBuffer(source->buffer(), source_offset, target->buffer(), target_offset, bytes);
}

void Recorder::copy_out(const std::shared_ptr<const StorageImpl>& source, uint64_t source_offset, const wgpu::Buffer& target,
                        uint64_t bytes) {
  open_encoder();
  close_pass();
  hold(source, *source);
  encoder_.CopyBufferToBuffer(source->buffer(), source_offset, target, 0, bytes);
}

Status Recorder::submit() {
  if (!encoder_) return {};
  close_pass();
  ErrorScopes scopes(core_->instance, core_->device, core_->errors);
  Status timed = timestamps_.resolve(encoder_);
  const wgpu::CommandBuffer commands = encoder_.Finish();
  params_.write_all();
  core_->queue.Submit(1, &commands);
  reset();
  CHORUS_TRY(scopes.finish("submit"));
  return timed;
}

void Recorder::discard() {
  if (!encoder_) return;
  close_pass();
  timestamps_.drop_open();
  reset();
}

void Recorder::reset() {
  encoder_ = nullptr;
  params_.reset();
  held_.clear();
  ++recording_;
}

}  // namespace chorus::gpu
