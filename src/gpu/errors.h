// Dawn's errors as values. Owns: the record of what went wrong on one device, error scopes, waiting on futures.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace chorus::gpu {

// Dawn's messages have several lines; ours have one.
std::string one_line(std::string_view text);

// What a device reported outside of error scopes, and its loss. Written by Dawn's callbacks (any thread), read by the device's owner.
class DeviceErrors {
 public:
  void report(wgpu::ErrorType type, std::string_view message);
  void report_loss(std::string_view message);
  bool lost() const { return lost_flag_.load(std::memory_order_acquire); }
  // The oldest error not yet taken. A loss stays: every later call reports it again.
  Status take();

 private:
  std::mutex mutex_;
  std::atomic<bool> lost_flag_{false};
  std::atomic<bool> dirty_{false};
  std::string lost_message_;
  std::optional<Error> first_;
  uint32_t dropped_ = 0;  // errors that followed `first_`
};

// Catches validation, out-of-memory and internal errors of the calls between its construction and finish().
class ErrorScopes {
 public:
  ErrorScopes(const wgpu::Instance& instance, const wgpu::Device& device, DeviceErrors& errors);
  ~ErrorScopes();
  ErrorScopes(const ErrorScopes&) = delete;
  ErrorScopes& operator=(const ErrorScopes&) = delete;
  // Closes the scopes. `what` says which call of ours failed ("create buffer weights/3 of 4096 bytes").
  Status finish(std::string_view what);

 private:
  std::optional<Error> pop();

  const wgpu::Instance& instance_;
  const wgpu::Device& device_;
  DeviceErrors& errors_;
  bool open_ = true;
};

// Waits for a future, at most `seconds`, without burning a core. False: time ran out or the wait failed.
bool wait_for(const wgpu::Instance& instance, wgpu::Future future, double seconds);

}  // namespace chorus::gpu
