// Positional reads of a file, past the page cache where the file system allows it.
// Owns: the descriptor, alignment rules of direct reads. Must not know: what the bytes mean.
//
// A direct read wants offset, length and memory at multiples of a block. Ranges that are so are read in place; others pass through an
// aligned buffer of the reading thread (kStagingBytes, kept). A file system that refuses direct reads, when the file is opened or later, is
// read through the page cache, whose pages are given back at once; buffered_reason() says so.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace chorus::experts {

class DirectFile {
 public:
  static constexpr uint64_t kBlockBytes = 4096;
  static constexpr uint64_t kStagingBytes = 1 << 20;

  // What the system offers, for tests that need another system: like open(path, flags) and pread.
  struct System {
    int (*open)(const char* path, int flags);
    ssize_t (*read_at)(int descriptor, void* out, size_t bytes, off_t offset);
  };
  static const System& real_system();

  // `direct` false: through the page cache, which keeps what was read.
  static Result<DirectFile> open(const std::filesystem::path& path, bool direct, const System& system = real_system());

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&&) = delete;
  ~DirectFile();

  const std::filesystem::path& path() const { return path_; }
  bool direct() const;  // now
  // Why reads go through the page cache although direct ones were asked for; empty: they do not.
  std::string buffered_reason() const;
  uint64_t size() const { return size_; }

  // All of `out` or an error that says file, place and reason. Any number of threads.
  Status read(uint64_t offset, std::span<std::byte> out) const;
  // The same bytes in pieces of at most kStagingBytes, each valid during its call only. Every piece but the last ends at a multiple of 16
  // bytes from `offset` when `offset` is one.
  using Take = std::function<Status(std::span<const std::byte> piece)>;
  Status read_through(uint64_t offset, uint64_t bytes, const Take& take) const;

 private:
  struct Buffered;
  DirectFile(const System& system, const std::filesystem::path& path);
  bool fall_back(int reason, const char* action) const;
  ssize_t read_some(std::span<std::byte> out, uint64_t offset) const;
  Status read_plain(uint64_t offset, std::span<std::byte> out) const;
  Error failed(uint64_t offset, uint64_t bytes, const std::string& reason) const;

  System system_;
  std::filesystem::path path_;
  int descriptor_ = -1;                 // for direct reads when these are asked for and the system opens such
  std::unique_ptr<Buffered> buffered_;  // null: direct reads were not asked for
  uint64_t size_ = 0;
};

}  // namespace chorus::experts
