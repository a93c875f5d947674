// The writing half of safetensors.h.
#include <algorithm>
#include <unordered_set>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace chorus::formats {
namespace {

struct Placed {
  TensorToWrite* tensor = nullptr;
  uint64_t bytes = 0;
  uint64_t begin = 0;
};

// How early a tensor goes: sizes that keep the 64-byte border first, then by element size so that every element stays
// aligned without padding.
int placement_class(const Placed& placed, uint64_t alignment) {
  if (placed.bytes % alignment == 0) return 0;
  if (placed.bytes % kDataAlignment == 0) return 1;
  return 10 - static_cast<int>(file_dtype_bytes(placed.tensor->dtype));
}

Result<std::vector<Placed>> place(std::vector<TensorToWrite>& tensors, const std::filesystem::path& path, uint64_t alignment) {
  std::vector<Placed> order;
  std::unordered_set<std::string_view> seen;
  for (auto& tensor : tensors) {
    if (!seen.insert(tensor.name).second) {
      return make_error(ErrorCode::invalid_argument, path.string() + ": tensor " + quote_text(tensor.name) + " is given twice");
    }
    std::optional<uint64_t> bytes = file_dtype_bytes(tensor.dtype);
    for (const uint64_t extent : tensor.shape) bytes = bytes ? checked_multiply(*bytes, extent) : std::nullopt;
    if (!bytes || tensor.shape.size() > limits::kTensorRankMax) {
      return make_error(ErrorCode::invalid_argument,
                        path.string() + ": tensor " + quote_text(tensor.name) + " has an impossible shape " + shape_text(tensor.shape));
    }
    order.push_back({&tensor, *bytes, 0});
  }
  std::stable_sort(order.begin(), order.end(),
                   [alignment](const Placed& a, const Placed& b) { return placement_class(a, alignment) < placement_class(b, alignment); });
  uint64_t end = 0;
  for (auto& placed : order) {
    placed.begin = end;
    const auto next = checked_add(end, placed.bytes);
    if (!next) return make_error(ErrorCode::invalid_argument, path.string() + ": the tensors together do not fit 64 bits");
    end = *next;
  }
  return order;
}

std::string header_text(const std::map<std::string, std::string>& metadata, const std::vector<Placed>& order, uint64_t alignment) {
  JsonValue header = JsonValue::object();
  if (!metadata.empty()) {
    JsonValue entries = JsonValue::object();
    for (const auto& [key, value] : metadata) entries.append(key, JsonValue::string(value));
    header.append("__metadata__", std::move(entries));
  }
  for (const auto& placed : order) {
    JsonValue shape = JsonValue::array();
    for (const uint64_t extent : placed.tensor->shape) shape.push_back(JsonValue::integer_digits(std::to_string(extent)));
    JsonValue offsets = JsonValue::array();
    offsets.push_back(JsonValue::integer_digits(std::to_string(placed.begin)));
    offsets.push_back(JsonValue::integer_digits(std::to_string(placed.begin + placed.bytes)));
    JsonValue entry = JsonValue::object();
    entry.append("dtype", JsonValue::string(std::string(file_dtype_name(placed.tensor->dtype))));
    entry.append("shape", std::move(shape));
    entry.append("data_offsets", std::move(offsets));
    header.append(placed.tensor->name, std::move(entry));
  }
  std::string text = json_dumps(header, {",", ":", false});
  while ((8 + text.size()) % alignment != 0) text += ' ';  // the format allows trailing spaces
  return text;
}

Status write_tensor(AtomicFile& file, const Placed& placed, const std::filesystem::path& path) {
  uint64_t written = 0;
  const TensorToWrite::Sink sink = [&](std::span<const std::byte> bytes) -> Status {
    written += bytes.size();
    if (written > placed.bytes) {
      return make_error(ErrorCode::internal, path.string() + ": tensor " + quote_text(placed.tensor->name) + " was given more than its " +
                                                 std::to_string(placed.bytes) + " bytes");
    }
    return file.write(bytes);
  };
  CHORUS_TRY(placed.tensor->write(sink));
  if (written != placed.bytes) {
    return make_error(ErrorCode::internal, path.string() + ": tensor " + quote_text(placed.tensor->name) + " was given " +
                                               std::to_string(written) + " bytes, expected " + std::to_string(placed.bytes));
  }
  return {};
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata,
                         std::vector<TensorToWrite> tensors, uint64_t alignment) {
  CHORUS_CHECK(alignment >= kDataAlignment && (alignment & (alignment - 1)) == 0);
  CHORUS_ASSIGN(const std::vector<Placed> order, place(tensors, path, alignment));
  const std::string header = header_text(metadata, order, alignment);
  if (header.size() > limits::kSafetensorsHeaderBytesMax) {
    return make_error(ErrorCode::limit_exceeded, path.string() + ": a header of " + std::to_string(header.size()) +
                                                     " bytes is over the limit of " + std::to_string(limits::kSafetensorsHeaderBytesMax));
  }
  CHORUS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const uint64_t length = header.size();
  CHORUS_TRY(file.write(std::as_bytes(std::span(&length, 1))));
  CHORUS_TRY(file.write(as_bytes(header)));
  for (const auto& placed : order) CHORUS_TRY(write_tensor(file, placed, path));
  return file.commit();
}

}  // namespace chorus::formats
