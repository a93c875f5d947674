// A file that appears under its name only when it is complete: written beside its place, synced, renamed. Whatever goes
// wrong before commit() leaves no trace and leaves a file of that name untouched; where the file system has files without a
// name (Linux), neither does a process that is killed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace chorus {

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  AtomicFile() = default;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: the file has no name yet, or its last
  int descriptor_ = -1;
};

}  // namespace chorus
