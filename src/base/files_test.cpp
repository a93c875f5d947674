// Tests of the file tools of base/: mapping, whole files, atomic files, quoting, hashes. Hostile paths are part of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/mapped_file.h"

namespace chorus {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("chorus-files-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

TEST_F(FilesTest, MapsAndStaysReadableAfterDrop) {
  std::string text(1 << 20, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 4096);
  auto file = MappedFile::open(write("big", text));
  ASSERT_TRUE(file.ok()) << file.error().to_line();
  EXPECT_EQ(as_text(file->bytes()), text);
  file->drop(0, text.size());
  file->drop(4095, 2);
  file->drop(text.size() - 1, UINT64_MAX);
  file->drop(UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(as_text(file->bytes()), text);
  const void* address = file->bytes().data();
  MappedFile moved = std::move(file).value();
  EXPECT_EQ(moved.bytes().data(), address);
  moved = MappedFile();
  EXPECT_TRUE(moved.bytes().empty());
}

TEST_F(FilesTest, EmptyMissingAndFolder) {
  const auto empty = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes().empty());
  const auto missing = MappedFile::open(folder_ / "missing");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  const auto directory = MappedFile::open(folder_);
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().code, ErrorCode::invalid_input);
}

TEST_F(FilesTest, ReadTextFileKeepsTheLimit) {
  const auto path = write("text", std::string(70000, 'a'));
  EXPECT_EQ(read_text_file(path, 70000).value().size(), 70000u);
  const auto refused = read_text_file(path, 69999);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::limit_exceeded);
  EXPECT_NE(refused.error().message.find("69999"), std::string::npos);
  EXPECT_EQ(read_text_file(folder_ / "missing", 1).error().code, ErrorCode::not_found);
  EXPECT_EQ(read_text_file(folder_, 1).error().code, ErrorCode::invalid_input);
}

TEST_F(FilesTest, ALinkThatLeadsNowhereIsNoMissingFile) {
  const auto link = folder_ / "link";
  std::filesystem::create_symlink(folder_ / "gone", link);
  EXPECT_TRUE(name_is_taken(link));
  EXPECT_FALSE(name_is_taken(folder_ / "gone"));
  EXPECT_NE(read_text_file(link, 1).error().message.find("leads nowhere"), std::string::npos);
}

TEST_F(FilesTest, AtomicFileAppearsOnlyWhenCommitted) {
  const auto path = write("target", "old");
  const auto read = [&] { return read_text_file(path, 100).value(); };
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file.ok()) << file.error().to_line();
    ASSERT_TRUE(file->write(as_bytes("new ")).ok());
    ASSERT_TRUE(file->write(as_bytes("text")).ok());
    EXPECT_EQ(read(), "old");
#ifdef O_TMPFILE
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);  // nothing that a killed process would leave
#endif
    auto second = AtomicFile::create(path);  // two writers do not share a temporary file
    ASSERT_TRUE(second.ok());
    ASSERT_TRUE(second->write(as_bytes("never")).ok());
    ASSERT_TRUE(file->commit().ok());
    EXPECT_EQ(read(), "new text");
  }
  EXPECT_EQ(read(), "new text");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  const auto refusal = [](const std::filesystem::path& target) {
    const auto made = AtomicFile::create(target);
    return made.ok() ? "accepted" : error_code_name(made.error().code);
  };
  EXPECT_STREQ(refusal(folder_), "invalid_argument");
  EXPECT_STREQ(refusal(folder_ / "no" / "folder"), "not_found");
  EXPECT_STREQ(refusal(""), "invalid_argument");
  ASSERT_TRUE(std::filesystem::is_character_file("/dev/zero"));
  EXPECT_STREQ(refusal("/dev/zero"), "invalid_argument");  // a device is never replaced by a file
}

TEST(Bytes, CheckedArithmetic) {
  EXPECT_EQ(checked_add(UINT64_MAX, 0), UINT64_MAX);
  EXPECT_FALSE(checked_add(UINT64_MAX, 1).has_value());
  EXPECT_EQ(checked_multiply(1ull << 32, (1ull << 32) - 1), ((1ull << 32) - 1) << 32);
  EXPECT_FALSE(checked_multiply(1ull << 32, 1ull << 32).has_value());
}

TEST(Bytes, QuotedIsOneShortLine) {
  EXPECT_EQ(quote_text("a\nb\"c"), "\"a\\x0ab\\\"c\"");
  EXPECT_LT(quote_text(std::string(10000, '\n')).size(), 700u);
}

TEST(Hash, KnownVectors) {  // FIPS 180-2, appendix B
  EXPECT_EQ(sha256_hex(as_bytes("abc")).value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex({}).value(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace chorus
