// The pipeline cache on disk: round trips, damage of every kind is a miss, and a device over a damaged cache works.
#include "gpu/blob_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "gpu/device.h"

namespace chorus::gpu {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

class BlobCacheFiles : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::path(testing::TempDir()) / (std::string("chorus_blobs_") + test->name());
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (!fs::exists(directory_)) return found;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }

  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void replace(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary | std::ios::trunc) << text; }

  static std::string load(BlobCache& cache, std::string_view key) {
    const std::vector<std::byte> key_bytes = bytes_of(key);
    std::vector<std::byte> value(cache.load(key_bytes, {}));
    if (value.empty()) return {};
    EXPECT_EQ(cache.load(key_bytes, value), value.size());
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }

  fs::path directory_;
};

TEST_F(BlobCacheFiles, RoundTrip) {
  BlobCache cache(directory_);
  EXPECT_EQ(load(cache, "key"), "");
  cache.store(bytes_of("key"), bytes_of("some value"));
  cache.store(bytes_of("other"), bytes_of("another"));
  EXPECT_EQ(load(cache, "key"), "some value");
  EXPECT_EQ(load(cache, "other"), "another");
  cache.store(bytes_of("key"), bytes_of("newer"));
  EXPECT_EQ(load(cache, "key"), "newer");
  BlobCache second(directory_);
  EXPECT_EQ(load(second, "key"), "newer");
  EXPECT_EQ(second.hits(), 1u);
  EXPECT_EQ(files().size(), 2u);  // no drafts left
}

TEST_F(BlobCacheFiles, EveryDamagedByteIsAMiss) {
  {
    BlobCache cache(directory_);
    cache.store(bytes_of("key"), bytes_of("value"));
  }
  ASSERT_EQ(files().size(), 1u);
  const fs::path path = files().front();
  const std::string good = content(path);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    replace(path, bad);
    BlobCache cache(directory_);
    EXPECT_EQ(load(cache, "key"), "") << "byte " << at;
    EXPECT_FALSE(fs::exists(path)) << "byte " << at;
  }
}

TEST_F(BlobCacheFiles, TruncatedAndExtendedFilesAreMisses) {
  {
    BlobCache cache(directory_);
    cache.store(bytes_of("key"), bytes_of("value"));
  }
  const fs::path path = files().front();
  const std::string good = content(path);
  for (size_t size = 0; size < good.size(); ++size) {
    replace(path, good.substr(0, size));
    BlobCache cache(directory_);
    EXPECT_EQ(load(cache, "key"), "") << "size " << size;
  }
  replace(path, good + "x");
  BlobCache cache(directory_);
  EXPECT_EQ(load(cache, "key"), "");
}

TEST_F(BlobCacheFiles, AnUnwritableDirectoryIsHarmless) {
  replace(directory_, "a file where the directory should be");
  BlobCache cache(directory_);
  cache.store(bytes_of("key"), bytes_of("value"));
  EXPECT_EQ(cache.stores(), 0u);
  EXPECT_EQ(load(cache, "key"), "");
}

constexpr std::string_view kText = R"(
@group(0) @binding(1) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1)
fn main() { data[0] = data[0] * 5u + 7u; }
)";
constexpr ShaderSource kShader{"cached", "first", kText};

// 7 when the kernel ran on zeroed memory.
uint32_t run_kernel(const fs::path& directory) {
  DeviceOptions options;
  options.allow_software = true;
  options.cache_directory = directory.string();
  Result<std::unique_ptr<Device>> device = Device::create(options);
  EXPECT_TRUE(device.ok()) << (device.ok() ? "" : device.error().to_line());
  if (!device.ok()) return 0;
  auto storage = (*device)->create_storage(16, "cached");
  EXPECT_TRUE(storage.ok());
  Dispatch dispatch;
  dispatch.shader = &kShader;
  dispatch.bindings = {{*storage, Access::read_write}};
  EXPECT_TRUE((*device)->dispatch(dispatch).ok());
  uint32_t value = 0;
  EXPECT_TRUE((*device)->read(*storage, 0, std::as_writable_bytes(std::span(&value, 1))).ok());
  return value;
}

TEST_F(BlobCacheFiles, ADeviceFillsItAndSurvivesItsDamage) {
  EXPECT_EQ(run_kernel(directory_), 7u);
  const std::vector<fs::path> filled = files();
  ASSERT_FALSE(filled.empty()) << "Dawn stored nothing";
  const auto stamp = fs::last_write_time(filled.front());
  EXPECT_EQ(run_kernel(directory_), 7u);
  EXPECT_EQ(files().size(), filled.size());
  EXPECT_EQ(fs::last_write_time(filled.front()), stamp) << "a hit must not store again";
  for (const fs::path& path : filled) {
    std::string bad = content(path);
    for (size_t at = bad.size() / 2; at < bad.size(); ++at) bad[at] = static_cast<char>(~bad[at]);
    replace(path, bad);
  }
  EXPECT_EQ(run_kernel(directory_), 7u);
  for (const fs::path& path : files()) replace(path, "");
  EXPECT_EQ(run_kernel(directory_), 7u);
  EXPECT_EQ(files().size(), filled.size());
}

TEST(DawnBuildId, IsThere) { EXPECT_FALSE(dawn_build_id().empty()); }

}  // namespace
}  // namespace chorus::gpu
