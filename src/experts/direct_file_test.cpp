#include "experts/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "formats/test_tools.h"

namespace chorus::experts {
namespace {

using formats::testing::expect_error;
using formats::testing::TemporaryFolder;

std::atomic<int> direct_reads{0}, buffered_reads{0};
std::atomic<int> reads_before_refusal{0};
std::array<std::atomic<bool>, 1024> opened_direct;  // by descriptor

// Descriptors are direct by what was asked for: whether the file system below has direct reads does not matter.
bool is_direct(int descriptor) { return opened_direct.at(static_cast<size_t>(descriptor)); }
int pretended_open(const char* path, int flags) {
  const int descriptor = ::open(path, flags & ~O_DIRECT);
  if (descriptor >= 0) opened_direct.at(static_cast<size_t>(descriptor)) = (flags & O_DIRECT) != 0;
  return descriptor;
}
// As some file systems do.
int refuse_direct_open(const char* path, int flags) {
  if ((flags & O_DIRECT) == 0) return ::open(path, flags);
  errno = EINVAL;
  return -1;
}
ssize_t refuse_direct_read(int descriptor, void* out, size_t bytes, off_t offset) {
  if (!is_direct(descriptor)) {
    ++buffered_reads;
    return ::pread(descriptor, out, bytes, offset);
  }
  if (reads_before_refusal-- > 0) {
    ++direct_reads;
    return ::pread(descriptor, out, bytes, offset);
  }
  errno = EINVAL;
  return -1;
}
ssize_t broken_read(int, void*, size_t, off_t) {
  errno = EIO;
  return -1;
}

std::string some_bytes(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 7;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

// Ranges with every kind of border, whole and in pieces.
void expect_all_readable(const DirectFile& file, const std::string& bytes) {
  for (const auto& [offset, count] :
       {std::pair<uint64_t, uint64_t>{0, bytes.size()}, {4096, 8192}, {1, 5000}, {4095, 2}, {bytes.size() - 3, 3}, {8192, 4096}}) {
    alignas(4096) static std::byte memory[4 << 20];
    ASSERT_LE(count, sizeof memory);
    const auto status = file.read(offset, {memory, count});
    ASSERT_TRUE(status.ok()) << status.error().to_line();
    EXPECT_EQ(std::memcmp(memory, bytes.data() + offset, count), 0) << offset << " + " << count;
    std::string pieces;
    const auto through = file.read_through(offset, count, [&](std::span<const std::byte> piece) -> Status {
      pieces.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return {};
    });
    ASSERT_TRUE(through.ok()) << through.error().to_line();
    EXPECT_EQ(pieces, bytes.substr(offset, count));
  }
}

class DirectFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    bytes_ = some_bytes((2 << 20) + 777);
    path_ = folder_.write("file", bytes_);
    direct_reads = buffered_reads = 0;
  }
  TemporaryFolder folder_;
  std::filesystem::path path_;
  std::string bytes_;
};

TEST_F(DirectFiles, TheSystemsOwnWayReadsEverything) {
  for (const bool direct : {false, true}) {
    const auto file = DirectFile::open(path_, direct);
    ASSERT_TRUE(file.ok()) << file.error().to_line();
    EXPECT_EQ(file->size(), bytes_.size());
    expect_all_readable(*file, bytes_);
    EXPECT_EQ(file->direct(), direct && file->buffered_reason().empty());  // by file system
    if (!direct) {
      EXPECT_EQ(file->buffered_reason(), "");
    }
  }
}

TEST_F(DirectFiles, AFileSystemThatRefusesToOpenIsReadThroughTheCache) {
  const auto file = DirectFile::open(path_, true, {refuse_direct_open, ::pread});
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_FALSE(file->direct());
  EXPECT_EQ(file->buffered_reason(), path_.string() + ": the system refuses direct reads (open: Invalid argument)");
  EXPECT_EQ(file->size(), bytes_.size());
  expect_all_readable(*file, bytes_);
}

TEST_F(DirectFiles, AFileSystemThatRefusesToReadIsReadThroughTheCacheFromThenOn) {
  for (const int before : {0, 1, 3}) {
    reads_before_refusal = before;
    direct_reads = buffered_reads = 0;
    const auto file = DirectFile::open(path_, true, {pretended_open, refuse_direct_read});
    ASSERT_TRUE(file.ok()) << file.error().to_line();
    EXPECT_TRUE(file->direct());
    EXPECT_EQ(file->buffered_reason(), "");
    expect_all_readable(*file, bytes_);
    EXPECT_FALSE(file->direct());
    EXPECT_EQ(file->buffered_reason(), path_.string() + ": the system refuses direct reads (read: Invalid argument)");
    EXPECT_EQ(direct_reads, before);
    EXPECT_GT(buffered_reads, 0);
  }
}

TEST_F(DirectFiles, ManyThreadsFallBackOnce) {
  reads_before_refusal = 2;
  const auto file = DirectFile::open(path_, true, {pretended_open, refuse_direct_read});
  ASSERT_TRUE(file.ok());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> memory(30000);
      for (uint64_t i = 0; i < 20; ++i) {
        const uint64_t offset = (t * 20 + i) * 1001;
        good += file->read(offset, memory).ok() && std::memcmp(memory.data(), bytes_.data() + offset, memory.size()) == 0 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 80);
  EXPECT_FALSE(file->direct());
}

TEST_F(DirectFiles, OtherFailuresAreErrorsThatSayWhereAndWhy) {
  const auto file = DirectFile::open(path_, true, {pretended_open, broken_read});
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> memory(100);
  expect_error(file->read(5, memory), path_.string() + ": cannot read 100 bytes at offset 5: Input/output error");
  EXPECT_EQ(file->buffered_reason(), "");
  const auto good = DirectFile::open(path_, true, {refuse_direct_open, ::pread});
  ASSERT_TRUE(good.ok());
  expect_error(good->read(bytes_.size() - 50, memory), "the file ends after 50 of them");
  expect_error(DirectFile::open(folder_.path() / "none", true), "cannot open: No such file");
  expect_error(DirectFile::open(folder_.path() / "none", true, {refuse_direct_open, ::pread}), "cannot open: No such file");
  expect_error(DirectFile::open(folder_.path(), true), folder_.path().string());
}

}  // namespace
}  // namespace chorus::experts
