// The zip archive that torch.save writes, read from memory: <root>/data.pkl, <root>/data/<key> per storage, <root>/byteorder.
// Entries are stored without compression, so that no entry can be larger than the archive.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct zip;

namespace chorus::formats {

class TorchArchive {
 public:
  // `bytes` must outlive the archive.
  static Result<TorchArchive> open(std::span<const std::byte> bytes, std::string_view where);

  // An entry below the root folder, e.g. "data.pkl" or "data/0"; its checksum is verified.
  Result<std::string> read(std::string_view name) const;
  bool has(std::string_view name) const { return entries_.contains(root_ + std::string(name)); }

 private:
  struct Entry {
    uint64_t index = 0;
    uint64_t bytes = 0;
  };
  struct Discard {
    void operator()(zip* archive) const;
  };
  Status list_entries(uint64_t archive_bytes);
  Status find_root();

  std::unique_ptr<zip, Discard> archive_;
  std::map<std::string, Entry> entries_;
  std::string root_;  // with the slash
  std::string where_;
};

}  // namespace chorus::formats
