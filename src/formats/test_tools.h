// Tools of the format tests: a folder that goes away, files built by hand, errors as they must look.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace chorus::formats::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() / ("chorus-formats-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes;
  for (const T& value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  return bytes;
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return bytes_of<uint64_t>({header.size()}) + std::string(header) + std::string(data);
}

// Header text padded with spaces so that the data starts on an 8-byte border.
inline std::string padded(std::string header) {
  while (header.size() % 8 != 0) header += ' ';
  return header;
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) {
    ADD_FAILURE() << "the text to replace is not there: " << from;
    return text;
  }
  return text.replace(at, from.size(), to);
}

// Equal as memory: -0 is not 0, and one NaN is itself.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// An error that is one clear line and says `part`.
template <typename T>
void expect_error(const Result<T>& result, std::string_view part) {
  ASSERT_FALSE(result.ok()) << "expected an error that says: " << part;
  const std::string line = result.error().to_line();
  EXPECT_NE(line.find(part), std::string::npos) << "expected: " << part << "\nfound: " << line;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  EXPECT_LT(line.size(), 2000u) << line;
  EXPECT_NE(result.error().code, ErrorCode::internal) << line;
}

}  // namespace chorus::formats::testing
