// Dawn's compiled pipelines and shaders on disk, one file per blob. Owns: file format, checksums, atomic replacement.
// A file that is damaged, truncated or of another format is a miss and is removed; nothing here can make a run fail.
#pragma once

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace chorus::gpu {

// Digits that change with the Dawn library in use; empty when they cannot be had (Dawn's own keys still hold its version then).
std::string dawn_build_id();

class BlobCache {
 public:
  // Files go to `directory`, made when missing. Callers pass one directory per adapter, driver and Dawn build.
  explicit BlobCache(std::filesystem::path directory);

  // The blob's size, 0 for a miss; copied into `value` when it fits. Dawn asks twice: first for the size. Any thread.
  size_t load(std::span<const std::byte> key, std::span<std::byte> value);
  void store(std::span<const std::byte> key, std::span<const std::byte> value);

  uint32_t hits() const { return hits_; }
  uint32_t stores() const { return stores_; }

 private:
  std::filesystem::path path_of(std::span<const std::byte> key) const;
  std::optional<std::vector<std::byte>> read_file(std::span<const std::byte> key) const;

  std::filesystem::path directory_;
  std::mutex mutex_;
  // The blob of the last size question, so that the file is read once.
  std::vector<std::byte> last_key_, last_value_;
  uint32_t hits_ = 0, stores_ = 0;
};

}  // namespace chorus::gpu
