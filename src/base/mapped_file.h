// A file mapped read-only into memory. The mapping lives as long as the object; moving keeps addresses.
// The kernel loads pages on first touch and `drop` gives them back, so reading a file of any size in order needs little
// resident memory. A file that another program truncates while it is mapped raises SIGBUS: model files must not change
// under a running program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace chorus {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Releases the resident pages that lie wholly inside [offset, offset + length). The bytes stay readable. Thread-safe.
  void drop(uint64_t offset, uint64_t length) const;

 private:
  void unmap();

  void* address_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace chorus
