// File format, little-endian: magic (8 bytes), key size, value size (u64 each), SHA-256 of key and value in hexadecimal (64 bytes), key,
// value.
#include "gpu/blob_cache.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/hash.h"

#if defined(__linux__)
#include <link.h>
#include <unistd.h>
#include <webgpu/webgpu.h>
#endif

namespace chorus::gpu {
namespace {

constexpr std::string_view kMagic = "CHORPIP1";
constexpr size_t kHeaderBytes = 8 + 8 + 8 + 64;
constexpr uint64_t kBlobBytesMax = 64ull << 20;

struct Header {
  uint64_t key_bytes = 0;
  uint64_t value_bytes = 0;
  std::string digest;
};

std::string digest_of(std::span<const std::byte> key, std::span<const std::byte> value) {
  std::vector<std::byte> both(key.begin(), key.end());
  both.insert(both.end(), value.begin(), value.end());
  Result<std::string> digest = sha256_hex(both);
  return digest ? *digest : std::string();
}

std::vector<std::byte> encode(std::span<const std::byte> key, std::span<const std::byte> value, const std::string& digest) {
  std::vector<std::byte> file(kHeaderBytes + key.size() + value.size());
  const uint64_t sizes[2] = {key.size(), value.size()};
  std::memcpy(file.data(), kMagic.data(), 8);
  std::memcpy(file.data() + 8, sizes, 16);
  std::memcpy(file.data() + 24, digest.data(), 64);
  std::copy(key.begin(), key.end(), file.begin() + kHeaderBytes);
  std::copy(value.begin(), value.end(), file.begin() + static_cast<ptrdiff_t>(kHeaderBytes + key.size()));
  return file;
}

// The value of a well-formed file of this key; nothing for any other content.
std::optional<std::vector<std::byte>> decode(std::span<const std::byte> file, std::span<const std::byte> key) {
  if (file.size() < kHeaderBytes + key.size() || std::memcmp(file.data(), kMagic.data(), 8) != 0) return std::nullopt;
  uint64_t sizes[2];
  std::memcpy(sizes, file.data() + 8, 16);
  if (sizes[0] != key.size() || sizes[1] != file.size() - kHeaderBytes - key.size()) return std::nullopt;
  if (!std::ranges::equal(file.subspan(kHeaderBytes, key.size()), key)) return std::nullopt;
  const std::span<const std::byte> value = file.subspan(kHeaderBytes + key.size());
  const std::string digest = digest_of(key, value);
  if (digest.size() != 64 || std::memcmp(digest.data(), file.data() + 24, 64) != 0) return std::nullopt;
  return std::vector<std::byte>(value.begin(), value.end());
}

#if defined(__linux__)
// Looks for the GNU build id among the notes of the shared object that holds `address`.
struct BuildIdSearch {
  uintptr_t address = 0;
  std::string id;
};

bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (int index = 0; index < object.dlpi_phnum; ++index) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[index];
    const uintptr_t start = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= start && address - start < segment.p_memsz) return true;
  }
  return false;
}

std::string build_id_of_notes(const std::byte* notes, size_t bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof(note));
    const size_t name = (size_t{note.n_namesz} + 3) / 4 * 4, value = (size_t{note.n_descsz} + 3) / 4 * 4;
    if (bytes - sizeof(note) < name + value) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes + sizeof(note), "GNU", 4) == 0) {
      std::string id;
      for (size_t at = 0; at < note.n_descsz; ++at) {
        const unsigned byte = std::to_integer<unsigned>(notes[sizeof(note) + name + at]);
        id += digits[byte >> 4];
        id += digits[byte & 15];
      }
      return id;
    }
    notes += sizeof(note) + name + value;
    bytes -= sizeof(note) + name + value;
  }
  return {};
}

int visit_object(dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<BuildIdSearch*>(data);
  if (!holds(*object, search->address)) return 0;
  for (int index = 0; index < object->dlpi_phnum && search->id.empty(); ++index) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[index];
    if (segment.p_type != PT_NOTE) continue;
    search->id = build_id_of_notes(reinterpret_cast<const std::byte*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  return 1;
}
#endif

}  // namespace

std::string dawn_build_id() {
#if defined(__linux__)
  BuildIdSearch search{reinterpret_cast<uintptr_t>(&wgpuCreateInstance), {}};
  dl_iterate_phdr(visit_object, &search);
  return search.id;
#else
  return {};
#endif
}

BlobCache::BlobCache(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code ignored;
  std::filesystem::create_directories(directory_, ignored);
}

std::filesystem::path BlobCache::path_of(std::span<const std::byte> key) const {
  Result<std::string> name = sha256_hex(key);
  return directory_ / ((name ? *name : std::string("unnamed")) + ".blob");
}

std::optional<std::vector<std::byte>> BlobCache::read_file(std::span<const std::byte> key) const {
  const std::filesystem::path path = path_of(key);
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return std::nullopt;
  std::optional<std::vector<std::byte>> value;
  if (bytes <= kBlobBytesMax) {
    std::vector<std::byte> content(bytes);
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(bytes))) return std::nullopt;
    value = decode(content, key);
  }
  if (!value) std::filesystem::remove(path, error);
  return value;
}

size_t BlobCache::load(std::span<const std::byte> key, std::span<std::byte> value) {
  std::lock_guard lock(mutex_);
  if (last_value_.empty() || !std::ranges::equal(last_key_, key)) {
    std::optional<std::vector<std::byte>> found = read_file(key);
    if (!found) return 0;
    last_key_.assign(key.begin(), key.end());
    last_value_ = std::move(*found);
  }
  const size_t size = last_value_.size();
  if (value.size() >= size) {
    std::copy(last_value_.begin(), last_value_.end(), value.begin());
    last_value_.clear();
    ++hits_;
  }
  return size;
}

void BlobCache::store(std::span<const std::byte> key, std::span<const std::byte> value) {
  std::lock_guard lock(mutex_);
  if (value.empty() || value.size() + key.size() + kHeaderBytes > kBlobBytesMax) return;
  const std::string digest = digest_of(key, value);
  if (digest.size() != 64) return;
  const std::vector<std::byte> content = encode(key, value, digest);
  const std::filesystem::path path = path_of(key);
  std::filesystem::path draft = path;
#if defined(__linux__)
  draft += "." + std::to_string(getpid());
#endif
  draft += ".draft";
  bool written = false;
  {
    std::ofstream file(draft, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    file.close();
    written = !file.fail();
  }
  std::error_code error;
  if (written) std::filesystem::rename(draft, path, error);
  if (!written || error) std::filesystem::remove(draft, error);
  if (written && !error) ++stores_;
}

}  // namespace chorus::gpu
