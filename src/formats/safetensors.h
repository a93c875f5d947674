// Safetensors: a length, a JSON header (name -> dtype, shape, data_offsets), then the data, end to end.
// Every number of the header is checked before anything is read: the header length against the file and a limit, offsets
// against the data, sizes against shape times element size, alignment of each element, no gaps, no overlaps, no bytes left
// over, no duplicate names. After open() a TensorInfo can be trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace chorus::formats {

enum class FileDType : uint8_t { F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL };

uint32_t file_dtype_bytes(FileDType type);
std::string_view file_dtype_name(FileDType type);

struct TensorInfo {
  std::string name;
  FileDType dtype = FileDType::F32;
  std::vector<uint64_t> shape;
  uint64_t elements = 0;  // product of shape
  uint32_t file = 0;      // index into TensorStore::files()
  uint64_t offset = 0;    // of the first byte, from the start of that file
  uint64_t bytes = 0;
};

// "[512, 1, 4]"
std::string shape_text(std::span<const uint64_t> shape);

// The header of one file, checked against the file's size; offsets in the result count from the start of the file.
// Pure: this is what the fuzzer calls. `where` names the file in errors.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // in the order of the header
  std::map<std::string, std::string> metadata;  // __metadata__
};
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, std::string_view where);

// Read access to all tensors of one file or one folder of shards. Immutable after open(); safe to use from several threads.
class TensorStore {
 public:
  // A file; or a folder with model.safetensors, or with model.safetensors.index.json and its shards, or with exactly one
  // model*.safetensors.
  static Result<TensorStore> open(const std::filesystem::path& file_or_folder);

  TensorStore(TensorStore&&) = default;
  TensorStore& operator=(TensorStore&&) = default;

  const TensorInfo* find(std::string_view name) const;
  Result<const TensorInfo*> require(std::string_view name) const;  // an error that names the tensor and the file
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  std::vector<std::string> names() const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<MappedFile>& files() const { return files_; }
  uint64_t data_bytes() const;  // of all tensors
  const std::filesystem::path& path() const { return path_; }

  std::span<const std::byte> raw(const TensorInfo& tensor) const;

  // Widens F32, F16 or BF16 to f32. NaN or infinity is an error that names tensor and element. What was read
  // gives its resident pages back.
  Status read_f32(const TensorInfo& tensor, uint64_t first_element, std::span<float> out) const;
  // I32, or I64 whose values fit.
  Status read_i32(const TensorInfo& tensor, uint64_t first_element, std::span<int32_t> out) const;

 private:
  TensorStore() = default;
  Status add_file(const std::filesystem::path& path);
  void drop_read(const TensorInfo& tensor, uint64_t first_byte, uint64_t bytes) const;

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// One tensor to write. `write` is called once, in file order, and must hand all bytes to `sink` in any number of pieces.
struct TensorToWrite {
  using Sink = std::function<Status(std::span<const std::byte>)>;
  std::string name;
  FileDType dtype = FileDType::F32;
  std::vector<uint64_t> shape;
  std::function<Status(const Sink& sink)> write;
};

inline constexpr uint64_t kDataAlignment = 64;

// Writes a safetensors file in one pass with little memory. The same input gives the same bytes. The data starts on a border of
// `alignment` bytes (a power of two, at least 64); tensors whose size is a multiple of it come first, then those of a multiple of 64, so
// that each of them starts on such a border too, without gaps (which readers refuse); in each of these groups the given order stays.
// The file appears under `path` only when it is complete: it is written beside it, synced and renamed.
Status write_safetensors(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata,
                         std::vector<TensorToWrite> tensors, uint64_t alignment = kDataAlignment);

}  // namespace chorus::formats
