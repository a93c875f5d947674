// A store without files, for tests: records of known numbers, errors and delays on request.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "experts/expert_store.h"

namespace chorus::experts::testing {

class FakeStore final : public ExpertStore {
 public:
  FakeStore(std::vector<uint32_t> experts, compute::ExpertShape shape, uint32_t parts = 3)
      : experts_(std::move(experts)), shape_(shape), parts_(parts) {}

  uint32_t layers() const override { return static_cast<uint32_t>(experts_.size()); }
  uint32_t experts(uint32_t layer) const override { return experts_[layer]; }
  const compute::ExpertShape& shape() const override { return shape_; }
  bool direct() const override { return false; }
  std::string buffered_reason() const override { return buffered_reason_; }
  void refuse_direct_reads(std::string reason) { buffered_reason_ = std::move(reason); }
  uint32_t parts() const override { return parts_; }
  uint64_t stored_bytes() const override { return record_bytes(); }

  // The whole record of an expert; small numbers that depend on layer, expert and place.
  std::vector<std::byte> record_of(ExpertKey key) const {
    std::vector<float> values(record_bytes() / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i * 7 + key.expert * 13 + key.layer * 29) % 61) / 64.0f - 0.46875f;
    }
    std::vector<std::byte> bytes(record_bytes());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  Status read_part(ExpertKey key, uint32_t part, std::span<std::byte> record) const override {
    {
      std::unique_lock lock(mutex_);
      ++begun_[key];
      changed_.notify_all();
      changed_.wait(lock, [&] { return !held_.contains(key) && !hold_all_; });
      if (const auto found = failures_.find(key); found != failures_.end() && found->second.left > 0) {
        --found->second.left;
        return make_error(found->second.code, "fake.safetensors: " + place_text(key) + ": cannot read");
      }
    }
    const auto whole = record_of(key);
    const uint64_t begin = whole.size() * part / parts_, end = whole.size() * (part + 1) / parts_;
    std::memcpy(record.data() + begin, whole.data() + begin, end - begin);
    return {};
  }
  Status finish(ExpertKey key, std::span<std::byte>) const override {
    const std::scoped_lock lock(mutex_);
    ++finished_[key];
    return {};
  }

  // The next `times` reads of a part fail.
  void fail(ExpertKey key, int times, ErrorCode code = ErrorCode::io_failed) {
    const std::scoped_lock lock(mutex_);
    failures_[key] = {times, code};
  }
  // Reads of it wait until let_go().
  void hold(ExpertKey key) {
    const std::scoped_lock lock(mutex_);
    held_.insert(key);
  }
  void hold_all() {
    const std::scoped_lock lock(mutex_);
    hold_all_ = true;
  }
  void let_go() {
    {
      const std::scoped_lock lock(mutex_);
      held_.clear();
      hold_all_ = false;
    }
    changed_.notify_all();
  }
  void wait_until_begun(ExpertKey key) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_[key] > 0; });
  }
  int begun(ExpertKey key) const {
    const std::scoped_lock lock(mutex_);
    return begun_[key];
  }
  int finished(ExpertKey key) const {
    const std::scoped_lock lock(mutex_);
    return finished_[key];
  }

 private:
  struct Failure {
    int left = 0;
    ErrorCode code = ErrorCode::io_failed;
  };
  std::vector<uint32_t> experts_;
  compute::ExpertShape shape_;
  uint32_t parts_;
  std::string buffered_reason_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::map<ExpertKey, int> begun_, finished_;
  mutable std::map<ExpertKey, Failure> failures_;
  std::set<ExpertKey> held_;
  bool hold_all_ = false;
};

}  // namespace chorus::experts::testing
