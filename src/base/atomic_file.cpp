#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace chorus {
namespace {

Error system_error(const std::filesystem::path& path, const char* action) {
  const bool bad_name = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == ELOOP;
  return make_error(bad_name ? ErrorCode::not_found : ErrorCode::io_failed,
                    path.string() + ": cannot " + action + ": " + std::strerror(errno));
}

constexpr int kNameAttempts = 100;

std::string open_file_name(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

// A file without a name, which the system removes with the process that writes it; -1 where there are none or none that can be named later.
int open_unnamed([[maybe_unused]] const std::filesystem::path& path) {
#ifdef O_TMPFILE
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor < 0 || ::access(open_file_name(descriptor).c_str(), F_OK) == 0) return descriptor;
  ::close(descriptor);
#endif
  return -1;
}

// Calls `make` with free names beside `path` until one is made. A leftover of an interrupted run keeps its name; the next number is free.
template <typename Make>
Result<std::string> make_temporary(const std::filesystem::path& path, const Make& make) {
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    std::string name = path.string() + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
    if (make(name.c_str())) return name;
    if (errno != EEXIST) break;
  }
  return system_error(path, "create");
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
  if (!path.has_filename()) {
    const std::string name = path.empty() ? "output" : path.string();
    return make_error(ErrorCode::invalid_argument, name + ": expected the name of a file to write, found none");
  }
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) {
    return make_error(ErrorCode::invalid_argument, path.string() + ": expected the name of a file to write, found a folder");
  }
  // The rename at the end would put a file in the place of a device or a pipe.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return make_error(ErrorCode::invalid_argument,
                      path.string() + ": expected a regular file or a free name, found a device, pipe or socket");
  }
  AtomicFile file;
  file.path_ = path;
  file.descriptor_ = open_unnamed(path);
  if (file.descriptor_ >= 0) return file;
  CHORUS_ASSIGN(file.temporary_, make_temporary(path, [&](const char* name) {
                  file.descriptor_ = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
                  return file.descriptor_ >= 0;
                }));
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})), descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) return system_error(path_, "sync");
  if (temporary_.empty()) {
    const std::string open_file = open_file_name(descriptor_);
    CHORUS_ASSIGN(temporary_, make_temporary(path_, [&](const char* name) {
                    return ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
                  }));
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) return system_error(path_, "close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_error(path_, "rename into place");
  temporary_.clear();
  return {};
}

}  // namespace chorus
