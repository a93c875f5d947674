// GPU times of dispatches: two timestamps at the borders of each pass, resolved with the submit, read when asked for.
#pragma once

#include <webgpu/webgpu_cpp.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/core.h"
#include "gpu/device.h"

namespace chorus::gpu {

// Nanoseconds of each dispatch from (begin, end) pairs in submission order. A begin before the previous end counts from that end:
// some tilers stamp the begin of a pass when it is queued. A pair that runs backwards counts as zero.
std::vector<double> durations_from_timestamps(std::span<const uint64_t> begin_end_pairs);

class Timestamps {
 public:
  explicit Timestamps(Core& core) : core_(core), enabled_(core.capabilities.timestamps) {}
  bool enabled() const { return enabled_; }
  // Writes of the next pass.
  Result<wgpu::PassTimestampWrites> add(const std::string& kernel);
  // Ends the recording's query sets; called inside the encoder that is about to be submitted.
  Status resolve(const wgpu::CommandEncoder& encoder);
  // Forgets the passes of a recording that is not submitted.
  void drop_open();
  // Waits and sums per kernel, in order of first appearance.
  Result<std::vector<DispatchTime>> take();

 private:
  // Small: every submit takes at least one set, which comes back when the times are read.
  static constexpr uint32_t kQueriesPerSet = 256;
  struct Set {
    wgpu::QuerySet queries;
    wgpu::Buffer resolved;  // QueryResolve | CopySrc
    wgpu::Buffer readable;  // MapRead
    std::vector<std::string> kernels;
  };
  Result<Set> make_set();

  Core& core_;
  bool enabled_ = false;
  std::vector<Set> open_;     // of the recording
  std::vector<Set> pending_;  // submitted, not yet read
  std::vector<Set> spare_;
};

}  // namespace chorus::gpu
