#include "gpu/timestamps.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "gpu/readback.h"

namespace chorus::gpu {

std::vector<double> durations_from_timestamps(std::span<const uint64_t> begin_end_pairs) {
  std::vector<double> durations;
  durations.reserve(begin_end_pairs.size() / 2);
  uint64_t previous_end = 0;
  for (size_t at = 0; at + 1 < begin_end_pairs.size(); at += 2) {
    const uint64_t begin = std::max(begin_end_pairs[at], previous_end);
    const uint64_t end = begin_end_pairs[at + 1];
    durations.push_back(end > begin ? static_cast<double>(end - begin) : 0.0);
    previous_end = std::max(previous_end, end);
  }
  return durations;
}

Result<Timestamps::Set> Timestamps::make_set() {
  Set set;
  constexpr uint64_t bytes = uint64_t{kQueriesPerSet} * 8;
  CHORUS_ASSIGN(set.resolved, core_.create_buffer(wgpu::BufferUsage::QueryResolve | wgpu::BufferUsage::CopySrc, bytes, "timestamps"));
  CHORUS_ASSIGN(set.readable, core_.create_buffer(wgpu::BufferUsage::MapRead | wgpu::BufferUsage::CopyDst, bytes, "timestamps readback"));
  ErrorScopes scopes(core_.instance, core_.device, core_.errors);
  wgpu::QuerySetDescriptor descriptor;
  descriptor.type = wgpu::QueryType::Timestamp;
  descriptor.count = kQueriesPerSet;
  set.queries = core_.device.CreateQuerySet(&descriptor);
  CHORUS_TRY(scopes.finish("create a timestamp query set"));
  return set;
}

Result<wgpu::PassTimestampWrites> Timestamps::add(const std::string& kernel) {
  if (open_.empty() || open_.back().kernels.size() * 2 == kQueriesPerSet) {
    if (spare_.empty()) {
      CHORUS_ASSIGN(Set made, make_set());
      spare_.push_back(std::move(made));
    }
    open_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  Set& set = open_.back();
  wgpu::PassTimestampWrites writes;
  writes.querySet = set.queries;
  writes.beginningOfPassWriteIndex = static_cast<uint32_t>(set.kernels.size() * 2);
  writes.endOfPassWriteIndex = writes.beginningOfPassWriteIndex + 1;
  set.kernels.push_back(kernel);
  return writes;
}

Status Timestamps::resolve(const wgpu::CommandEncoder& encoder) {
  for (Set& set : open_) {
    const uint32_t count = static_cast<uint32_t>(set.kernels.size() * 2);
    encoder.ResolveQuerySet(set.queries, 0, count, set.resolved, 0);
    encoder.CopyBufferToBuffer(set.resolved, 0, set.readable, 0, uint64_t{count} * 8);
    pending_.push_back(std::move(set));
  }
  open_.clear();
  return {};
}

void Timestamps::drop_open() {
  for (Set& set : open_) {
    set.kernels.clear();
    spare_.push_back(std::move(set));
  }
  open_.clear();
}

Result<std::vector<DispatchTime>> Timestamps::take() {
  std::vector<DispatchTime> times;
  std::map<std::string, size_t> index_of;
  std::vector<Set> sets = std::move(pending_);
  pending_.clear();
  for (Set& set : sets) {
    std::vector<uint64_t> stamps(set.kernels.size() * 2);
    CHORUS_TRY(read_mapped(core_, set.readable, std::as_writable_bytes(std::span(stamps))));
    const std::vector<double> durations = durations_from_timestamps(stamps);
    for (size_t at = 0; at < durations.size(); ++at) {
      const auto [found, added] = index_of.try_emplace(set.kernels[at], times.size());
      if (added) times.push_back({set.kernels[at], 0, 0});
      DispatchTime& time = times[found->second];
      time.milliseconds += durations[at] * 1e-6;
      ++time.calls;
    }
    set.kernels.clear();
    spare_.push_back(std::move(set));
  }
  return times;
}

}  // namespace chorus::gpu
