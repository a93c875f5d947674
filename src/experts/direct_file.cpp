#include "experts/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace chorus::experts {
namespace {

constexpr uint64_t kBlock = DirectFile::kBlockBytes;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Null when the system has no memory.
std::byte* thread_staging() {
  thread_local std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(std::aligned_alloc(kBlock, DirectFile::kStagingBytes)));
  return memory.get();
}

bool is_aligned(uint64_t offset, std::span<const std::byte> out) {
  return offset % kBlock == 0 && out.size() % kBlock == 0 && reinterpret_cast<uintptr_t>(out.data()) % kBlock == 0;
}

int open_file(const std::filesystem::path& path, int flags) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags); }

}  // namespace

Result<DirectFile> DirectFile::open(const std::filesystem::path& path, bool direct) {
  DirectFile file;
  file.path_ = path;
#ifdef O_DIRECT
  if (direct) file.descriptor_ = open_file(path, O_DIRECT);
  file.direct_ = file.descriptor_ >= 0;
#endif
  if (file.descriptor_ < 0) file.descriptor_ = open_file(path, 0);
  if (file.descriptor_ < 0) {
    const ErrorCode code = errno == ENOENT || errno == ENOTDIR ? ErrorCode::not_found : ErrorCode::io_failed;
    return make_error(code, path.string() + ": cannot open: " + std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0) {
    return make_error(ErrorCode::io_failed, path.string() + ": cannot read the size of: " + std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return make_error(ErrorCode::invalid_input, path.string() + ": expected a regular file");
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), direct_(other.direct_), size_(other.size_) {}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Error DirectFile::failed(uint64_t offset, uint64_t bytes, const std::string& reason) const {
  return make_error(ErrorCode::io_failed, path_.string() + ": cannot read " + std::to_string(bytes) + " bytes at offset " +
                                              std::to_string(offset) + ": " + reason);
}

Status DirectFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return {};
  if (!direct_ || (is_aligned(offset, out) && offset + out.size() <= size_)) return read_plain(offset, out);
  uint64_t done = 0;
  return read_through(offset, out.size(), [&](std::span<const std::byte> piece) -> Status {
    std::memcpy(out.data() + done, piece.data(), piece.size());
    done += piece.size();
    return {};
  });
}

Status DirectFile::read_plain(uint64_t offset, std::span<std::byte> out) const {
  uint64_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count > 0) {
      done += static_cast<uint64_t>(count);
    } else if (count == 0) {
      return failed(offset, out.size(), "the file ends after " + std::to_string(done) + " of them");
    } else if (errno != EINTR) {
      return failed(offset, out.size(), std::strerror(errno));
    }
  }
  return {};
}

// Whole blocks around each piece of the range; the last one may be cut by the end of the file.
Status DirectFile::read_through(uint64_t offset, uint64_t bytes, const Take& take) const {
  std::byte* staging = thread_staging();
  if (staging == nullptr) return make_error(ErrorCode::out_of_memory, path_.string() + ": no memory for reading");
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done;
    const uint64_t first = at / kBlock * kBlock;
    const uint64_t last = std::min(first + kStagingBytes, (offset + bytes + kBlock - 1) / kBlock * kBlock);
    const uint64_t needed = std::min(last, offset + bytes) - first;
    uint64_t held = 0;
    // A read may end early at any block; only the end of the file ends it for good.
    while (held < needed) {
      const uint64_t from = direct_ ? held / kBlock * kBlock : held;
      const ssize_t count = ::pread(descriptor_, staging + from, last - first - from, static_cast<off_t>(first + from));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return failed(offset, bytes, std::strerror(errno));
      if (from + static_cast<uint64_t>(count) <= held) {
        const uint64_t reached = first + held;
        return failed(offset, bytes, "the file ends after " + std::to_string(reached > offset ? reached - offset : 0) + " of them");
      }
      held = from + static_cast<uint64_t>(count);
    }
    const uint64_t count = needed - (at - first);
    CHORUS_TRY(take({staging + (at - first), count}));
    done += count;
  }
  return {};
}

}  // namespace chorus::experts
