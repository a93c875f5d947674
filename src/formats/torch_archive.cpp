#include "formats/torch_archive.h"

#include <zip.h>

#include "base/bytes.h"

namespace chorus::formats {
namespace {

constexpr int64_t kEntriesMax = 4096;
constexpr std::string_view kPickleName = "data.pkl";

struct ErrorText {
  zip_error_t error;
  ErrorText() { zip_error_init(&error); }
  ~ErrorText() { zip_error_fini(&error); }
  ErrorText(const ErrorText&) = delete;
  ErrorText& operator=(const ErrorText&) = delete;
  std::string text() { return zip_error_strerror(&error); }
};

struct CloseEntry {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

}  // namespace

void TorchArchive::Discard::operator()(zip* archive) const { zip_discard(archive); }

Result<TorchArchive> TorchArchive::open(std::span<const std::byte> bytes, std::string_view where) {
  TorchArchive archive;
  archive.where_ = where;
  ErrorText failure;
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &failure.error);
  if (source == nullptr) return make_error(ErrorCode::out_of_memory, archive.where_ + ": " + failure.text());
  archive.archive_.reset(zip_open_from_source(source, ZIP_RDONLY, &failure.error));
  if (!archive.archive_) {
    zip_source_free(source);  // zip_open_from_source owns it only on success
    return make_error(ErrorCode::invalid_input, archive.where_ + ": expected the zip archive that torch.save writes: " + failure.text());
  }
  CHORUS_TRY(archive.list_entries(bytes.size()));
  CHORUS_TRY(archive.find_root());
  if (archive.has("byteorder")) {
    CHORUS_ASSIGN(const std::string order, archive.read("byteorder"));
    if (order != "little") {
      return make_error(ErrorCode::unsupported, archive.where_ + ": byte order " + quote_text(order) + ", expected \"little\"");
    }
  }
  return archive;
}

Status TorchArchive::list_entries(uint64_t archive_bytes) {
  const int64_t count = zip_get_num_entries(archive_.get(), 0);
  if (count < 0 || count > kEntriesMax) {
    return make_error(ErrorCode::limit_exceeded,
                      where_ + ": " + std::to_string(count) + " entries in the archive, over the limit of " + std::to_string(kEntriesMax));
  }
  for (int64_t i = 0; i < count; ++i) {
    zip_stat_t status;
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(i), 0, &status) != 0 || (status.valid & kNeeded) != kNeeded) {
      return make_error(ErrorCode::invalid_input, where_ + ": entry " + std::to_string(i) + " of the archive is malformed");
    }
    const std::string name = status.name;
    if (status.comp_method != ZIP_CM_STORE || status.encryption_method != ZIP_EM_NONE) {
      return make_error(ErrorCode::unsupported,
                        where_ + ": entry " + quote_text(name) + " is compressed or encrypted, expected plain storage");
    }
    if (status.size > archive_bytes) {
      return make_error(ErrorCode::invalid_input, where_ + ": entry " + quote_text(name) + " claims " + std::to_string(status.size) +
                                                      " bytes in an archive of " + std::to_string(archive_bytes));
    }
    if (!entries_.emplace(name, Entry{static_cast<uint64_t>(i), status.size}).second) {
      return make_error(ErrorCode::invalid_input, where_ + ": entry " + quote_text(name) + " occurs twice");
    }
  }
  return {};
}

Status TorchArchive::find_root() {
  for (const auto& [name, entry] : entries_) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || std::string_view(name).substr(slash + 1) != kPickleName) continue;
    if (!root_.empty()) {
      return make_error(ErrorCode::invalid_input,
                        where_ + ": two folders with data.pkl, " + quote_text(root_) + " and " + quote_text(name));
    }
    root_ = name.substr(0, slash + 1);
  }
  if (root_.empty()) return make_error(ErrorCode::invalid_input, where_ + ": no data.pkl in the archive: torch.save did not write it");
  return {};
}

Result<std::string> TorchArchive::read(std::string_view name) const {
  const auto found = entries_.find(root_ + std::string(name));
  if (found == entries_.end())
    return make_error(ErrorCode::invalid_input, where_ + ": no entry " + quote_text(root_ + std::string(name)) + " in the archive");
  const auto failure = [&] {
    return make_error(ErrorCode::invalid_input,
                      where_ + ": entry " + quote_text(found->first) + " is damaged: " + zip_strerror(archive_.get()));
  };
  const std::unique_ptr<zip_file_t, CloseEntry> file(zip_fopen_index(archive_.get(), found->second.index, 0));
  if (!file) return failure();
  std::string bytes(found->second.bytes, '\0');
  uint64_t position = 0;
  while (position < bytes.size()) {
    const int64_t count = zip_fread(file.get(), bytes.data() + position, bytes.size() - position);
    if (count <= 0)
      return make_error(ErrorCode::invalid_input,
                        where_ + ": entry " + quote_text(found->first) + " is damaged: " + zip_file_strerror(file.get()));
    position += static_cast<uint64_t>(count);
  }
  char beyond = 0;  // the checksum is compared when the reader reaches the end
  if (zip_fread(file.get(), &beyond, 1) != 0) {
    return make_error(ErrorCode::invalid_input,
                      where_ + ": entry " + quote_text(found->first) + " is damaged: " + zip_file_strerror(file.get()));
  }
  return bytes;
}

}  // namespace chorus::formats
