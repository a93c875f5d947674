// Positional reads of a file, past the page cache where the file system allows it.
// Owns: the descriptor, alignment rules of direct reads. Must not know: what the bytes mean.
//
// A direct read wants offset, length and memory at multiples of a block. Ranges that are so are read in place; others pass through an
// aligned buffer of the reading thread (kStagingBytes, kept).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "base/result.h"

namespace chorus::experts {

class DirectFile {
 public:
  static constexpr uint64_t kBlockBytes = 4096;
  static constexpr uint64_t kStagingBytes = 1 << 20;

  // `direct` false, or a file system without direct reads: through the page cache.
  static Result<DirectFile> open(const std::filesystem::path& path, bool direct);

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&&) = delete;
  ~DirectFile();

  const std::filesystem::path& path() const { return path_; }
  bool direct() const { return direct_; }
  uint64_t size() const { return size_; }

  // All of `out` or an error that says file, place and reason. Any number of threads.
  Status read(uint64_t offset, std::span<std::byte> out) const;
  // The same bytes in pieces of at most kStagingBytes, each valid during its call only. Every piece but the last ends at a multiple of 16
  // bytes from `offset` when `offset` is one.
  using Take = std::function<Status(std::span<const std::byte> piece)>;
  Status read_through(uint64_t offset, uint64_t bytes, const Take& take) const;

 private:
  DirectFile() = default;
  Status read_plain(uint64_t offset, std::span<std::byte> out) const;
  Error failed(uint64_t offset, uint64_t bytes, const std::string& reason) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool direct_ = false;
  uint64_t size_ = 0;
};

}  // namespace chorus::experts
