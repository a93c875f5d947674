// The experts of a model, ready to run: resident when they fit, else under a budget. Front door for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "compute/backend.h"
#include "experts/cached_experts.h"
#include "models/expert_executor.h"
#include "models/language_checkpoint.h"

namespace chorus::experts {

struct ExpertOptions {
  uint64_t expert_ram_bytes = 0;   // 0: from the memory that is free
  uint64_t expert_vram_bytes = 0;  // 0: what the device gives
  bool prefetch = true;
  bool direct_io = true;  // reads under a budget pass by the page cache, where the file system allows it
  uint32_t reading_threads = 4;
  std::optional<std::filesystem::path> usage_file;  // nothing: beside the model (usage_file_of); empty: none
  LogSink log;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes, while resident experts are loaded
};

struct ExpertStatistics {
  bool resident = true;
  bool in_place = true;  // no device memory of its own
  uint64_t record_bytes = 0, experts = 0;
  uint64_t host_slots = 0, device_slots = 0;
  std::string buffered_reason;  // why reads do not pass by the page cache although that was asked for
  CacheStatistics cache;
  DeviceStatistics device;
  ExecutorTimes times;
};

class ExpertSystem {
 public:
  virtual ~ExpertSystem() = default;
  // Null when the model has no routed experts.
  virtual models::ExpertExecutor* executor() = 0;
  // One line: what is kept where, and how the rest is read.
  virtual const std::string& plan() const = 0;
  virtual ExpertStatistics statistics() const = 0;
  // Adds this run's uses to the usage file; done once, by the destructor at the latest. A file that cannot be written is logged once.
  virtual void save_usage() = 0;
};

// `backend` must outlive the system, as must the system the model that uses its executor; `checkpoint` lives until that model is loaded.
Result<std::unique_ptr<ExpertSystem>> open_experts(compute::Backend& backend, const models::LanguageCheckpoint& checkpoint, DType dtype,
                                                   const ExpertOptions& options);
// The same for a model that is opened only for this.
Result<std::unique_ptr<ExpertSystem>> open_experts(compute::Backend& backend, const std::filesystem::path& model, DType dtype,
                                                   const ExpertOptions& options);

// The store of a checkpoint, folder or packed.
Result<std::unique_ptr<ExpertStore>> open_expert_store(const models::LanguageCheckpoint& checkpoint, DType dtype, bool direct_io);

}  // namespace chorus::experts
