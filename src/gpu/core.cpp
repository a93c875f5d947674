#include "gpu/core.h"

#include <string>

namespace chorus::gpu {

Core::~Core() {
  bind_groups.clear();
  queue = nullptr;
  if (device) device.Destroy();
  device = nullptr;
  // Lets the callbacks of the destruction run while `errors` is alive.
  if (instance) instance.ProcessEvents();
  instance = nullptr;
}

Status Core::reserve(uint64_t bytes, std::string_view label) {
  const uint64_t held = in_use_.load(std::memory_order_relaxed);
  if (memory_bytes_cap != 0 && (bytes > memory_bytes_cap || held > memory_bytes_cap - bytes)) {
    return make_error(ErrorCode::out_of_memory, "webgpu: buffer " + std::string(label) + ": " + std::to_string(bytes) + " bytes asked, " +
                                                    std::to_string(held) + " held, the cap is " + std::to_string(memory_bytes_cap));
  }
  const uint64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  peak_ = std::max(peak_, now);
  return {};
}

Result<wgpu::Buffer> Core::create_buffer(wgpu::BufferUsage usage, uint64_t bytes, std::string_view label) {
  CHORUS_TRY(errors.take());
  if (bytes > capabilities.buffer_bytes_max) {
    return make_error(ErrorCode::limit_exceeded, "webgpu: buffer " + std::string(label) + ": " + std::to_string(bytes) +
                                                     " bytes asked, the adapter allows " + std::to_string(capabilities.buffer_bytes_max));
  }
  CHORUS_TRY(reserve(bytes, label));
  ErrorScopes scopes(instance, device, errors);
  wgpu::BufferDescriptor descriptor;
  descriptor.label = wgpu::StringView(label);
  descriptor.usage = usage;
  descriptor.size = bytes;
  wgpu::DawnFakeBufferOOMForTesting fake;
  fake.fakeOOMAtDevice = true;
  if (fake_out_of_memory_bytes != 0 && bytes >= fake_out_of_memory_bytes) descriptor.nextInChain = &fake;
  wgpu::Buffer buffer = device.CreateBuffer(&descriptor);
  Status status = scopes.finish("create buffer " + std::string(label) + " of " + std::to_string(bytes) + " bytes");
  if (status.ok() && !buffer) status = make_error(ErrorCode::out_of_memory, "webgpu: buffer " + std::string(label) + " was not created");
  if (!status.ok()) {
    release(bytes);
    return std::move(status).error();
  }
  return buffer;
}

Status Core::wait_or_lose(wgpu::Future future, std::string_view what) {
  if (!wait_for(instance, future, wait_seconds_max)) {
    errors.report_loss(std::string(what) + ": no answer in " + std::to_string(static_cast<int>(wait_seconds_max)) + " s");
    device.Destroy();
  }
  return errors.take();
}

Status Core::wait_again_or_lose(wgpu::Future future, std::string_view what) {
  using std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(20);    // of which a wake-up is a small part
  constexpr std::chrono::nanoseconds kPollMost = std::chrono::microseconds(200);  // before the last wait's time, and behind it
  const auto start = steady_clock::now();
  const auto passed = [&] { return std::chrono::nanoseconds(steady_clock::now() - start); };
  bool done = false;
  if (!capabilities.software && last_wait_.count() > 0 && last_wait_ < kLongest) {
    done = instance.WaitAny(future, static_cast<uint64_t>((last_wait_ - std::min(last_wait_ / 8, kPollMost)).count())) ==
           wgpu::WaitStatus::Success;
    while (!done && passed() < last_wait_ + std::min(last_wait_ / 16, kPollMost))
      done = instance.WaitAny(future, 0) == wgpu::WaitStatus::Success;
  }
  Status status = done ? errors.take() : wait_or_lose(future, what);
  last_wait_ = passed();
  return status;
}

Status Core::wait_for_queue() {
  CHORUS_TRY(errors.take());
  const wgpu::Future future =
      queue.OnSubmittedWorkDone(wgpu::CallbackMode::WaitAnyOnly, [](wgpu::QueueWorkDoneStatus, wgpu::StringView) {});
  return wait_or_lose(future, "waiting for submitted work");
}

StorageImpl::~StorageImpl() {
  core_->bind_groups.forget(bind_groups);
  // Dawn frees the memory once submitted work that uses it is done.
  buffer_.Destroy();
  core_->release(allocated_);
}

}  // namespace chorus::gpu
