#include "experts/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
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

constexpr int kPlainFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
#ifdef O_DIRECT
constexpr int kDirectFlags = kPlainFlags | O_DIRECT;
#else
constexpr int kDirectFlags = -1;
#endif

int system_open(const char* path, int flags) { return ::open(path, flags); }

}  // namespace

// What takes the place of direct reads once they are refused; any thread may find that out.
struct DirectFile::Buffered {
  std::atomic<int> descriptor{-1};  // not negative: direct reads are refused
  std::mutex mutex;
  std::string reason;

  ~Buffered() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

const DirectFile::System& DirectFile::real_system() {
  static const System system{system_open, ::pread};
  return system;
}

DirectFile::DirectFile(const System& system, const std::filesystem::path& path) : system_(system), path_(path) {}

Result<DirectFile> DirectFile::open(const std::filesystem::path& path, bool direct, const System& system) {
  DirectFile file(system, path);
  if (direct && kDirectFlags != -1) {
    file.buffered_ = std::make_unique<Buffered>();
    file.descriptor_ = system.open(path.c_str(), kDirectFlags);
    // Any refusal: whether the file can be opened at all shows next.
    if (file.descriptor_ < 0) file.fall_back(errno, "open");
  } else {
    file.descriptor_ = system.open(path.c_str(), kPlainFlags);
  }
  if (file.descriptor_ < 0 && !(file.buffered_ && file.buffered_->descriptor >= 0)) {
    const ErrorCode code = errno == ENOENT || errno == ENOTDIR ? ErrorCode::not_found : ErrorCode::io_failed;
    return make_error(code, path.string() + ": cannot open: " + std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(file.descriptor_ >= 0 ? file.descriptor_ : file.buffered_->descriptor.load(), &status) != 0) {
    return make_error(ErrorCode::io_failed, path.string() + ": cannot read the size of: " + std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return make_error(ErrorCode::invalid_input, path.string() + ": expected a regular file");
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : system_(other.system_),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffered_(std::move(other.buffered_)),
      size_(other.size_) {}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool DirectFile::direct() const { return buffered_ && buffered_->descriptor < 0; }

std::string DirectFile::buffered_reason() const {
  if (!buffered_ || buffered_->descriptor < 0) return {};
  const std::scoped_lock lock(buffered_->mutex);
  return buffered_->reason;
}

// From now on through the page cache. False, with errno, when the file cannot be opened that way.
bool DirectFile::fall_back(int reason, const char* action) const {
  const std::scoped_lock lock(buffered_->mutex);
  if (buffered_->descriptor >= 0) return true;  // another thread was first
  const int opened = system_.open(path_.c_str(), kPlainFlags);
  if (opened < 0) return false;
  buffered_->reason = path_.string() + ": the system refuses direct reads (" + action + ": " + std::strerror(reason) + ")";
  buffered_->descriptor = opened;
  return true;
}

// Like pread.
ssize_t DirectFile::read_some(std::span<std::byte> out, uint64_t offset) const {
  if (!buffered_) return system_.read_at(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
  if (buffered_->descriptor < 0) {
    const ssize_t count = system_.read_at(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count >= 0 || errno != EINVAL) return count;
    if (!fall_back(EINVAL, "read")) return -1;
  }
  const ssize_t count = system_.read_at(buffered_->descriptor, out.data(), out.size(), static_cast<off_t>(offset));
#ifdef POSIX_FADV_DONTNEED
  // Whole pages only are given back, so the ends are widened.
  const uint64_t first = offset / kBlock * kBlock;
  const uint64_t end = (offset + out.size() + kBlock - 1) / kBlock * kBlock;
  if (count > 0) ::posix_fadvise(buffered_->descriptor, static_cast<off_t>(first), static_cast<off_t>(end - first), POSIX_FADV_DONTNEED);
#endif
  return count;
}

Error DirectFile::failed(uint64_t offset, uint64_t bytes, const std::string& reason) const {
  return make_error(ErrorCode::io_failed, path_.string() + ": cannot read " + std::to_string(bytes) + " bytes at offset " +
                                              std::to_string(offset) + ": " + reason);
}

Status DirectFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return {};
  if (!direct() || (is_aligned(offset, out) && offset + out.size() <= size_)) return read_plain(offset, out);
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
    const ssize_t count = read_some(out.subspan(done), offset + done);
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
      const uint64_t from = direct() ? held / kBlock * kBlock : held;
      const ssize_t count = read_some({staging + from, last - first - from}, first + from);
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
