// Experts on disk, by layer and number. Front door of reading.
// Owns: the interface of stores. Must not know: caches, budgets, devices.
//
// A record is read in parts, so that several threads share one read, and finished when all parts are there. Everything here may be called
// from several threads; read_part and finish of one record have one owner, who orders finish after the parts.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "compute/backend.h"

namespace chorus::experts {

struct ExpertKey {
  uint32_t layer = 0;  // of the model
  uint32_t expert = 0;
  auto operator<=>(const ExpertKey&) const = default;
};

// "layer 3, expert 7"
std::string place_text(ExpertKey key);

class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  virtual uint32_t layers() const = 0;
  virtual uint32_t experts(uint32_t layer) const = 0;     // 0: the layer is dense
  virtual const compute::ExpertShape& shape() const = 0;  // of every expert
  virtual bool direct() const = 0;                        // reads pass by the page cache
  // Why reads do not, although that was asked for: one line that names the file; empty otherwise. May become so at any read.
  virtual std::string buffered_reason() const { return {}; }

  virtual uint32_t parts() const = 0;
  // `record` has at least record_bytes(); what lies beyond may be overwritten. Errors name file, layer and expert; io_failed is worth
  // another try.
  virtual Status read_part(ExpertKey key, uint32_t part, std::span<std::byte> record) const = 0;
  // Completes and checks a record.
  virtual Status finish(ExpertKey key, std::span<std::byte> record) const = 0;
  // Bytes that come from disk for one record.
  virtual uint64_t stored_bytes() const = 0;

  uint64_t record_bytes() const { return compute::ExpertRecord(shape()).bytes; }
  // Bytes of all experts as records.
  uint64_t total_bytes() const;
};

inline constexpr uint32_t kReadAttempts = 3;
inline constexpr uint32_t kReadPauseMilliseconds = 20;

// One part, tried again after a short pause when the system refused it.
Status read_part_with_retries(const ExpertStore& store, ExpertKey key, uint32_t part, std::span<std::byte> record);
// A whole record.
Status read_record(const ExpertStore& store, ExpertKey key, std::span<std::byte> record);

}  // namespace chorus::experts
