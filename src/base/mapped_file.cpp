#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace chorus {
namespace {

Error system_error(const std::filesystem::path& path, const char* action, int number) {
  const bool bad_name = number == ENOENT || number == ENOTDIR || number == ENAMETOOLONG || number == ELOOP;
  const ErrorCode code = bad_name ? ErrorCode::not_found : number == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::io_failed;
  return make_error(code, path.string() + ": cannot " + action + ": " + std::strerror(number));
}

struct FileDescriptor {
  int number = -1;
  ~FileDescriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const FileDescriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.number < 0) return system_error(path, "open", errno);
  struct stat status {};
  if (::fstat(descriptor.number, &status) != 0) return system_error(path, "read the size of", errno);
  if (!S_ISREG(status.st_mode)) return make_error(ErrorCode::invalid_input, path.string() + ": expected a regular file");

  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(status.st_size);
  if (file.size_ == 0) return file;  // mmap refuses length 0
  void* address = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
  if (address == MAP_FAILED) return system_error(path, "map", errno);
  file.address_ = address;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    address_ = std::exchange(other.address_, nullptr);
    size_ = std::exchange(other.size_, 0);
    path_ = std::move(other.path_);
  }
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (address_ != nullptr) ::munmap(address_, size_);
}

void MappedFile::drop(uint64_t offset, uint64_t length) const {
  if (offset >= size_ || length == 0) return;
  const uint64_t end = length > size_ - offset ? size_ : offset + length;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = (offset + page - 1) / page * page;
  const uint64_t last = end == size_ ? end : end / page * page;
  if (first >= last) return;
  // Advice: when the kernel refuses it, the pages merely stay.
  ::madvise(static_cast<char*>(address_) + first, last - first, MADV_DONTNEED);
}

}  // namespace chorus
