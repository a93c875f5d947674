#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/convert.h"
#include "formats/json.h"

namespace chorus::formats {
namespace {

constexpr uint64_t kLengthBytes = 8;              // u64 header length before the header
constexpr uint64_t kDropBytesMin = 256ull << 10;  // smaller reads keep their pages: they are likely read again
constexpr std::string_view kMetadataKey = "__metadata__";

struct FileDTypeRow {
  FileDType type;
  std::string_view name;
  uint32_t bytes;
};

constexpr std::array<FileDTypeRow, 10> kFileDTypes{{{FileDType::F64, "F64", 8},
                                                    {FileDType::F32, "F32", 4},
                                                    {FileDType::F16, "F16", 2},
                                                    {FileDType::BF16, "BF16", 2},
                                                    {FileDType::I64, "I64", 8},
                                                    {FileDType::I32, "I32", 4},
                                                    {FileDType::I16, "I16", 2},
                                                    {FileDType::I8, "I8", 1},
                                                    {FileDType::U8, "U8", 1},
                                                    {FileDType::BOOL, "BOOL", 1}}};

std::optional<FileDType> parse_file_dtype(std::string_view name) {
  for (const auto& row : kFileDTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

Error malformed(std::string_view where, const std::string& what) {
  return make_error(ErrorCode::invalid_input, std::string(where) + ": " + what);
}

// Checks the length word and returns the header's size.
Result<uint64_t> header_bytes(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    return malformed(where, "expected at least 8 bytes of safetensors header length, found a file of " + std::to_string(file.size()));
  }
  const auto length = load_unaligned<uint64_t>(file.data());
  if (length > limits::kSafetensorsHeaderBytesMax) {
    return make_error(ErrorCode::limit_exceeded, std::string(where) + ": header length " + std::to_string(length) +
                                                     " is over the limit of " + std::to_string(limits::kSafetensorsHeaderBytesMax) +
                                                     " bytes");
  }
  if (length > file.size() - kLengthBytes) {
    return malformed(where, "header length " + std::to_string(length) + ", but only " + std::to_string(file.size() - kLengthBytes) +
                                " bytes follow: the file is truncated");
  }
  return length;
}

Result<std::map<std::string, std::string>> read_metadata(const JsonValue& value, std::string_view where) {
  if (!value.is_object()) return malformed(where, "__metadata__: expected an object, found " + std::string(json_kind_name(value.kind())));
  std::map<std::string, std::string> metadata;
  for (const auto& member : value.members()) {
    const std::string* text = member.value.string_if();
    if (text == nullptr) {
      return malformed(where,
                       "__metadata__ " + quote_text(member.key) + ": expected a string, found " + json_kind_name(member.value.kind()));
    }
    metadata.emplace(member.key, *text);
  }
  return metadata;
}

// Shape and the product of its sizes.
Status read_shape(const JsonValue& value, const std::string& what, TensorInfo& tensor) {
  CHORUS_ASSIGN(const auto sizes, value.as_array(what + " shape"));
  if (sizes.size() > limits::kTensorRankMax) {
    return make_error(ErrorCode::limit_exceeded,
                      what + ": rank " + std::to_string(sizes.size()) + " is over the limit of " + std::to_string(limits::kTensorRankMax));
  }
  tensor.elements = 1;
  for (const auto& size : sizes) {
    CHORUS_ASSIGN(const uint64_t extent, size.as_uint64(what + " shape"));
    tensor.shape.push_back(extent);
    const auto product = checked_multiply(tensor.elements, extent);
    if (!product) return make_error(ErrorCode::invalid_input, what + ": the number of elements of its shape does not fit 64 bits");
    tensor.elements = *product;
  }
  return {};
}

// One entry of the header. `data_start` and `data_bytes` are the place and size of the data part of the file.
Result<TensorInfo> read_tensor(const JsonMember& entry, std::string_view where, uint64_t data_start, uint64_t data_bytes) {
  const std::string what = std::string(where) + ": tensor " + quote_text(entry.key);
  CHORUS_TRY(entry.value.as_object(what));
  for (const auto& member : entry.value.members()) {
    if (member.key != "dtype" && member.key != "shape" && member.key != "data_offsets") {
      return make_error(ErrorCode::invalid_input,
                        what + ": expected dtype, shape and data_offsets, found the key " + quote_text(member.key));
    }
  }
  TensorInfo tensor;
  tensor.name = entry.key;

  CHORUS_ASSIGN(const JsonValue* dtype_value, entry.value.member("dtype", what));
  CHORUS_ASSIGN(const std::string_view dtype_text, dtype_value->as_string(what + " dtype"));
  const auto dtype = parse_file_dtype(dtype_text);
  if (!dtype) {
    return make_error(ErrorCode::unsupported,
                      what + ": dtype " + quote_text(dtype_text) + ", expected one of F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL");
  }
  tensor.dtype = *dtype;
  CHORUS_ASSIGN(const JsonValue* shape_value, entry.value.member("shape", what));
  CHORUS_TRY(read_shape(*shape_value, what, tensor));

  CHORUS_ASSIGN(const JsonValue* offsets_value, entry.value.member("data_offsets", what));
  CHORUS_ASSIGN(const auto offsets, offsets_value->as_array(what + " data_offsets"));
  if (offsets.size() != 2) {
    return make_error(ErrorCode::invalid_input, what + ": expected 2 data_offsets, found " + std::to_string(offsets.size()));
  }
  CHORUS_ASSIGN(const uint64_t begin, offsets[0].as_uint64(what + " data_offsets"));
  CHORUS_ASSIGN(const uint64_t end, offsets[1].as_uint64(what + " data_offsets"));
  if (begin > end || end > data_bytes) {
    return make_error(ErrorCode::invalid_input, what + ": data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) +
                                                    "] do not lie in the " + std::to_string(data_bytes) + " bytes of data");
  }
  const uint32_t element_bytes = file_dtype_bytes(tensor.dtype);
  const auto expected = checked_multiply(tensor.elements, element_bytes);
  if (!expected || *expected != end - begin) {
    return make_error(ErrorCode::invalid_input, what + ": " + std::string(dtype_text) + " " + shape_text(tensor.shape) + " takes " +
                                                    (expected ? std::to_string(*expected) : std::string("more than 2^64")) +
                                                    " bytes, data_offsets give " + std::to_string(end - begin));
  }
  tensor.offset = data_start + begin;  // both at most the file's size
  tensor.bytes = end - begin;
  if (tensor.offset % element_bytes != 0) {
    return make_error(ErrorCode::invalid_input, what + ": misaligned: byte " + std::to_string(tensor.offset) +
                                                    " of the file is no multiple of the element size " + std::to_string(element_bytes));
  }
  return tensor;
}

// The tensors must tile the data: each begins where the one before ends, the last at the end of the file.
Status check_tiling(const std::vector<TensorInfo>& tensors, std::string_view where, uint64_t data_start, uint64_t file_bytes) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes; });
  uint64_t expected = data_start;
  for (const TensorInfo* tensor : order) {
    if (tensor->offset != expected) {
      const char* what = tensor->offset < expected ? "overlaps the tensor before it" : "leaves a gap before it";
      return malformed(where, "tensor " + quote_text(tensor->name) + " " + what + ": expected its data at byte " +
                                  std::to_string(expected) + " of the file, found " + std::to_string(tensor->offset));
    }
    expected = tensor->offset + tensor->bytes;
  }
  if (expected != file_bytes) {
    return malformed(where, "the tensors end at byte " + std::to_string(expected) + ", the file at " + std::to_string(file_bytes));
  }
  return {};
}

// A shard name from an index file: a plain name beside the index, nothing that leaves the folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

struct ShardMap {
  std::set<std::string> files;
  std::map<std::string, std::string> file_of_tensor;
};

Result<ShardMap> read_index(const std::filesystem::path& path) {
  CHORUS_ASSIGN(const std::string text, read_text_file(path, limits::kJsonBytesMax));
  auto parsed = parse_json(text);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading " + path.string());
  CHORUS_ASSIGN(const JsonValue* weight_map, parsed->member("weight_map", path.string()));
  CHORUS_ASSIGN(const auto entries, weight_map->as_object(path.string() + ": weight_map"));
  ShardMap map;
  for (const auto& entry : entries) {
    CHORUS_ASSIGN(const std::string_view file, entry.value.as_string(path.string() + ": weight_map " + quote_text(entry.key)));
    if (!is_plain_file_name(file)) {
      return malformed(path.string(),
                       "weight_map " + quote_text(entry.key) + ": expected the name of a file beside it, found " + quote_text(file));
    }
    map.files.emplace(file);
    map.file_of_tensor.emplace(entry.key, file);
  }
  if (map.files.empty()) return malformed(path.string(), "weight_map names no tensor");
  return map;
}

Result<std::filesystem::path> single_weight_file(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> candidates;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error); !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) candidates.push_back(entry->path());
  }
  if (error) return make_error(ErrorCode::io_failed, folder.string() + ": cannot list: " + error.message());
  if (candidates.size() == 1) return candidates.front();
  if (candidates.empty()) {
    return make_error(ErrorCode::not_found,
                      folder.string() + ": expected model.safetensors or model.safetensors.index.json with its shards, found neither");
  }
  return make_error(ErrorCode::not_found, folder.string() + ": " + std::to_string(candidates.size()) +
                                              " model*.safetensors files, expected model.safetensors.index.json that lists them");
}

}  // namespace

uint32_t file_dtype_bytes(FileDType type) { return kFileDTypes[static_cast<size_t>(type)].bytes; }
std::string_view file_dtype_name(FileDType type) { return kFileDTypes[static_cast<size_t>(type)].name; }

std::string shape_text(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file, std::string_view where) {
  CHORUS_ASSIGN(const uint64_t length, header_bytes(file, where));
  const uint64_t data_start = kLengthBytes + length;
  const std::string_view text = as_text(file.subspan(kLengthBytes, length));
  // The reference library's rule; it also keeps other JSON documents from being taken for a header.
  if (!text.starts_with('{')) return malformed(where, "the header does not begin with '{': not a safetensors file");

  JsonLimits json_limits;
  json_limits.bytes_max = limits::kSafetensorsHeaderBytesMax;
  json_limits.values_max = limits::kTensorCountMax * (limits::kTensorRankMax + 6);
  json_limits.depth_max = 4;
  auto parsed = parse_json(text, json_limits);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading the header of " + std::string(where));
  CHORUS_ASSIGN(const auto entries, parsed->as_object(std::string(where) + ": header"));
  if (entries.size() > limits::kTensorCountMax) {
    return make_error(ErrorCode::limit_exceeded, std::string(where) + ": " + std::to_string(entries.size()) +
                                                     " tensors, over the limit of " + std::to_string(limits::kTensorCountMax));
  }

  SafetensorsHeader header;
  header.tensors.reserve(entries.size());
  for (const auto& entry : entries) {
    if (entry.key == kMetadataKey) {
      CHORUS_ASSIGN(header.metadata, read_metadata(entry.value, where));
      continue;
    }
    CHORUS_ASSIGN(TensorInfo tensor, read_tensor(entry, where, data_start, file.size() - data_start));
    header.tensors.push_back(std::move(tensor));
  }
  CHORUS_TRY(check_tiling(header.tensors, where, data_start, file.size()));
  return header;
}

Status TensorStore::add_file(const std::filesystem::path& path) {
  CHORUS_ASSIGN(MappedFile file, MappedFile::open(path));
  CHORUS_ASSIGN(SafetensorsHeader header, parse_safetensors_header(file.bytes(), path.string()));
  const auto file_index = static_cast<uint32_t>(files_.size());
  for (auto& tensor : header.tensors) {
    tensor.file = file_index;
    const auto [existing, added] = index_.emplace(tensor.name, tensors_.size());
    if (!added) {
      return malformed(path.string(),
                       "tensor " + quote_text(tensor.name) + " is also in " + files_[tensors_[existing->second].file].path().string());
    }
    tensors_.push_back(std::move(tensor));
  }
  for (auto& [key, value] : header.metadata) metadata_.emplace(key, std::move(value));
  files_.push_back(std::move(file));
  return {};
}

Result<TensorStore> TensorStore::open(const std::filesystem::path& file_or_folder) {
  TensorStore store;
  store.path_ = file_or_folder;
  std::error_code error;
  if (!std::filesystem::is_directory(file_or_folder, error)) {
    CHORUS_TRY(store.add_file(file_or_folder));
    return store;
  }
  const auto single = file_or_folder / "model.safetensors";
  const auto index = file_or_folder / "model.safetensors.index.json";
  if (std::filesystem::exists(single, error) || !std::filesystem::exists(index, error)) {
    CHORUS_ASSIGN(const auto path,
                  std::filesystem::exists(single, error) ? Result<std::filesystem::path>(single) : single_weight_file(file_or_folder));
    CHORUS_TRY(store.add_file(path));
    return store;
  }
  CHORUS_ASSIGN(const ShardMap shards, read_index(index));
  for (const auto& name : shards.files) {
    auto added = store.add_file(file_or_folder / name);
    if (!added.ok()) return std::move(added).error().with_context("opening the shards of " + index.string());
  }
  for (const auto& [tensor, file] : shards.file_of_tensor) {
    const TensorInfo* found = store.find(tensor);
    if (found == nullptr || store.files_[found->file].path().filename() != file) {
      return malformed(index.string(),
                       "weight_map places tensor " + quote_text(tensor) + " in " + quote_text(file) + ", which does not hold it");
    }
  }
  return store;
}

const TensorInfo* TensorStore::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Result<const TensorInfo*> TensorStore::require(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return tensor;
  return make_error(ErrorCode::not_found,
                    path_.string() + ": no tensor " + quote_text(name) + " among its " + std::to_string(tensors_.size()));
}

std::vector<std::string> TensorStore::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& tensor : tensors_) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t TensorStore::data_bytes() const {
  uint64_t total = 0;
  for (const auto& tensor : tensors_) total += tensor.bytes;
  return total;
}

std::span<const std::byte> TensorStore::raw(const TensorInfo& tensor) const {
  return files_[tensor.file].bytes().subspan(tensor.offset, tensor.bytes);
}

namespace {

Status check_range(const TensorInfo& tensor, uint64_t first, uint64_t count, const std::string& what) {
  if (first <= tensor.elements && count <= tensor.elements - first) return {};
  return make_error(ErrorCode::invalid_argument, what + ": elements " + std::to_string(first) + " to " + std::to_string(first) + " + " +
                                                     std::to_string(count) + " asked of " + std::to_string(tensor.elements));
}

}  // namespace

// After the last byte of a tensor the whole of it goes: small pieces at the start of it may still be resident.
void TensorStore::drop_read(const TensorInfo& tensor, uint64_t first_byte, uint64_t bytes) const {
  if (first_byte + bytes == tensor.bytes) {
    files_[tensor.file].drop(tensor.offset, tensor.bytes);
  } else if (bytes >= kDropBytesMin) {
    files_[tensor.file].drop(tensor.offset + first_byte, bytes);
  }
}

Status TensorStore::read_f32(const TensorInfo& tensor, uint64_t first_element, std::span<float> out) const {
  const auto what = [&] { return files_[tensor.file].path().string() + ": tensor " + quote_text(tensor.name); };
  if (tensor.dtype != FileDType::F32 && tensor.dtype != FileDType::F16 && tensor.dtype != FileDType::BF16) {
    return make_error(ErrorCode::unsupported, what() + ": expected F32, F16 or BF16, found " + std::string(file_dtype_name(tensor.dtype)));
  }
  CHORUS_TRY(check_range(tensor, first_element, out.size(), what()));
  if (out.empty()) return {};
  const uint64_t element_bytes = file_dtype_bytes(tensor.dtype);
  const std::byte* data = raw(tensor).data() + first_element * element_bytes;
  switch (tensor.dtype) {
    case FileDType::F32:
      std::memcpy(out.data(), data, out.size_bytes());
      break;
    case FileDType::F16:
      widen_f16(data, out);
      break;
    default:
      widen_bf16(data, out);
      break;
  }
  drop_read(tensor, first_element * element_bytes, out.size() * element_bytes);
  if (const auto bad = first_not_finite(out)) {
    return make_error(ErrorCode::invalid_input, what() + ": element " + std::to_string(first_element + *bad) + " is " +
                                                    (std::isnan(out[*bad]) ? "NaN" : "infinite") + ", expected a finite number");
  }
  return {};
}

Status TensorStore::read_i32(const TensorInfo& tensor, uint64_t first_element, std::span<int32_t> out) const {
  const auto what = [&] { return files_[tensor.file].path().string() + ": tensor " + quote_text(tensor.name); };
  if (tensor.dtype != FileDType::I32 && tensor.dtype != FileDType::I64) {
    return make_error(ErrorCode::unsupported, what() + ": expected I32 or I64, found " + std::string(file_dtype_name(tensor.dtype)));
  }
  CHORUS_TRY(check_range(tensor, first_element, out.size(), what()));
  const std::byte* data = raw(tensor).data();
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t element = first_element + i;
    const int64_t value =
        tensor.dtype == FileDType::I32 ? load_unaligned<int32_t>(data + element * 4) : load_unaligned<int64_t>(data + element * 8);
    if (value < INT32_MIN || value > INT32_MAX) {
      return make_error(ErrorCode::invalid_input,
                        what() + ": element " + std::to_string(element) + " is " + std::to_string(value) + ", expected a 32-bit integer");
    }
    out[i] = static_cast<int32_t>(value);
  }
  return {};
}

}  // namespace chorus::formats
