#include "gpu/errors.h"

#include <memory>
#include <utility>

namespace chorus::gpu {
namespace {

// Error scopes of native Dawn are answered at once; the limit only guards against a hang.
constexpr double kScopeSecondsMax = 30;

ErrorCode code_of(wgpu::ErrorType type) { return type == wgpu::ErrorType::OutOfMemory ? ErrorCode::out_of_memory : ErrorCode::internal; }

std::string_view name_of(wgpu::ErrorType type) {
  switch (type) {
    case wgpu::ErrorType::NoError:
      return "no error";
    case wgpu::ErrorType::Validation:
      return "validation error";
    case wgpu::ErrorType::OutOfMemory:
      return "out of device memory";
    case wgpu::ErrorType::Internal:
      return "internal device error";
    case wgpu::ErrorType::Unknown:
      return "unknown device error";
  }
  return "unknown device error";
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  bool gap = false;
  for (char character : text) {
    if (character == '\n' || character == '\r' || character == '\t' || character == ' ') {
      gap = !line.empty();
      continue;
    }
    if (gap) line += ' ';
    gap = false;
    line += character;
  }
  return line;
}

void DeviceErrors::report(wgpu::ErrorType type, std::string_view message) {
  std::lock_guard lock(mutex_);
  if (first_) {
    ++dropped_;
    return;
  }
  first_ = make_error(code_of(type), "webgpu: " + std::string(name_of(type)) + ": " + one_line(message));
  dirty_.store(true, std::memory_order_release);
}

void DeviceErrors::report_loss(std::string_view message) {
  std::lock_guard lock(mutex_);
  if (lost_flag_.load(std::memory_order_relaxed)) return;
  lost_message_ = one_line(message);
  lost_flag_.store(true, std::memory_order_release);
  dirty_.store(true, std::memory_order_release);
}

Status DeviceErrors::take() {
  if (!dirty_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  if (lost_flag_.load(std::memory_order_relaxed)) {
    return make_error(ErrorCode::device_lost, "webgpu: the device was lost: " + lost_message_ + "; create a new one");
  }
  dirty_.store(false, std::memory_order_release);
  if (!first_) return {};
  Error error = std::move(*first_);
  first_.reset();
  if (dropped_ > 0) error.message += " (and " + std::to_string(dropped_) + " more)";
  dropped_ = 0;
  return error;
}

ErrorScopes::ErrorScopes(const wgpu::Instance& instance, const wgpu::Device& device, DeviceErrors& errors)
    : instance_(instance), device_(device), errors_(errors) {
  device_.PushErrorScope(wgpu::ErrorFilter::Validation);
  device_.PushErrorScope(wgpu::ErrorFilter::OutOfMemory);
  device_.PushErrorScope(wgpu::ErrorFilter::Internal);
}

ErrorScopes::~ErrorScopes() {
  if (open_) (void)finish("abandoned call");
}

std::optional<Error> ErrorScopes::pop() {
  struct Answer {
    std::optional<Error> error;
  };
  // Owned by the callback until it has run, so that a late answer finds live memory.
  auto answer = std::make_shared<Answer>();
  auto* handle = new std::shared_ptr<Answer>(answer);
  const wgpu::Future future = device_.PopErrorScope(
      wgpu::CallbackMode::WaitAnyOnly,
      [](wgpu::PopErrorScopeStatus status, wgpu::ErrorType type, wgpu::StringView message, std::shared_ptr<Answer>* owned) {
        if (status == wgpu::PopErrorScopeStatus::Success && type != wgpu::ErrorType::NoError) {
          (*owned)->error = make_error(code_of(type), std::string(name_of(type)) + ": " + one_line(std::string_view(message)));
        }
        delete owned;
      },
      handle);
  // Native Dawn answers at once; a wait with a time limit costs more.
  if (instance_.WaitAny(future, 0) != wgpu::WaitStatus::Success && !wait_for(instance_, future, kScopeSecondsMax))
    return make_error(ErrorCode::internal, "an error scope was not answered");
  return std::move(answer->error);
}

Status ErrorScopes::finish(std::string_view what) {
  open_ = false;
  std::optional<Error> first;
  for (int scope = 0; scope < 3; ++scope) {
    std::optional<Error> error = pop();
    if (error && !first) first = std::move(error);
  }
  CHORUS_TRY(errors_.take());
  if (!first) return {};
  first->message = "webgpu: " + std::string(what) + ": " + first->message;
  return std::move(*first);
}

bool wait_for(const wgpu::Instance& instance, wgpu::Future future, double seconds) {
  return instance.WaitAny(future, static_cast<uint64_t>(seconds * 1e9)) == wgpu::WaitStatus::Success;
}

}  // namespace chorus::gpu
