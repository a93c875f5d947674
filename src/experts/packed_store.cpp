#include "experts/packed_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "experts/direct_file.h"
#include "experts/element_runs.h"
#include "experts/expert_hash.h"
#include "experts/expert_shape.h"
#include "formats/json.h"

namespace chorus::experts {
namespace {

using compute::ExpertRecord;
using compute::ExpertShape;
using formats::TensorInfo;

struct PackedLayer {
  uint32_t experts = 0;
  uint64_t offset = 0;      // of the first record, from the start of the file
  uint64_t first_hash = 0;  // index
};

class PackedStore final : public ExpertStore {
 public:
  PackedStore(DirectFile file, const ExpertShape& stored, DType dtype, std::vector<PackedLayer> layers, std::vector<ExpertHash> hashes)
      : file_(std::move(file)), stored_(stored), shape_(stored), layers_(std::move(layers)), hashes_(std::move(hashes)) {
    shape_.dtype = dtype;
    bytes_ = ExpertRecord(stored_).bytes;
    stride_ = packed_stride(bytes_);
  }

  uint32_t layers() const override { return static_cast<uint32_t>(layers_.size()); }
  uint32_t experts(uint32_t layer) const override { return layers_[layer].experts; }
  const ExpertShape& shape() const override { return shape_; }
  bool direct() const override { return file_.direct(); }
  std::string buffered_reason() const override { return file_.buffered_reason(); }
  uint64_t stored_bytes() const override { return stride_; }
  uint32_t parts() const override {
    if (converts()) return 1;
    return static_cast<uint32_t>((stride_ + DirectFile::kStagingBytes - 1) / DirectFile::kStagingBytes);
  }

  Status read_part(ExpertKey key, uint32_t part, std::span<std::byte> record) const override {
    CHORUS_CHECK(record.size() >= record_bytes() && part < parts() && key.layer < layers() && key.expert < experts(key.layer));
    auto status = converts() ? read_converted(key, record) : read_plain(key, part, record);
    if (status.ok() || status.error().message.find(place_text(key)) != std::string::npos) return status;
    return make_error(status.error().code, place_text(key) + ": " + status.error().message);
  }

  Status finish(ExpertKey key, std::span<std::byte> record) const override {
    if (converts()) return {};
    CHORUS_TRY(check_hash(key, record.first(bytes_)));
    return check_numbers(key, record);
  }

 private:
  bool converts() const { return stored_.dtype != shape_.dtype; }
  uint64_t offset_of(ExpertKey key) const { return layers_[key.layer].offset + key.expert * stride_; }

  // Whole blocks when the record's memory has room for them.
  Status read_plain(ExpertKey key, uint32_t part, std::span<std::byte> record) const {
    const uint64_t end = record.size() >= stride_ ? stride_ : bytes_;
    const uint64_t first = part * DirectFile::kStagingBytes;
    if (first >= end) return {};
    return file_.read(offset_of(key) + first, record.subspan(first, std::min(DirectFile::kStagingBytes, end - first)));
  }

  Status check_hash(ExpertKey key, std::span<const std::byte> record) const {
    const ExpertHash found = hash_of(record);
    const ExpertHash& expected = hashes_[layers_[key.layer].first_hash + key.expert];
    if (found == expected) return {};
    return make_error(ErrorCode::invalid_input, file_.path().string() + ": " + place_text(key) + ": damaged: expected the hash " +
                                                    hash_text(expected) + ", found " + hash_text(found));
  }

  // The hash finds damage; a file can also have been made of numbers that are none.
  Status check_numbers(ExpertKey key, std::span<const std::byte> record) const {
    const ExpertRecord layout(stored_);
    const uint64_t element = dtype_bytes(stored_.dtype);
    CHORUS_TRY(check_finite(key, "gate and up", record.first(2ull * stored_.inner * layout.hidden_padded * element), stored_.dtype));
    CHORUS_TRY(check_finite(key, "down", record.subspan(layout.down_offset, uint64_t{stored_.hidden} * layout.inner_padded * element),
                            stored_.dtype));
    return check_biases(key, record);
  }

  Status check_biases(ExpertKey key, std::span<const std::byte> record) const {
    if (!stored_.biases) return {};
    const ExpertRecord layout(stored_);
    const auto gate_up = record.subspan(layout.gate_up_bias_offset, 2ull * stored_.inner * sizeof(float));
    CHORUS_TRY(check_finite(key, "biases of gate and up", gate_up, DType::f32));
    return check_finite(key, "biases of down", record.subspan(layout.down_bias_offset, stored_.hidden * sizeof(float)), DType::f32);
  }

  Status check_finite(ExpertKey key, const char* part, std::span<const std::byte> values, DType dtype) const {
    if (all_finite(values, dtype)) return {};
    return make_error(ErrorCode::invalid_input,
                      file_.path().string() + ": " + place_text(key) + ": " + part + ": expected finite numbers, found NaN or infinity");
  }

  Status read_converted(ExpertKey key, std::span<std::byte> record) const {
    thread_local std::vector<std::byte> bytes;
    try {
      bytes.resize(bytes_);
    } catch (const std::bad_alloc&) {
      return make_error(ErrorCode::out_of_memory, "no memory for reading");
    }
    CHORUS_TRY(file_.read(offset_of(key), bytes));
    CHORUS_TRY(check_hash(key, bytes));
    const ExpertRecord from(stored_), to(shape_);
    const std::span<const std::byte> source(bytes);
    std::fill(record.begin(), record.begin() + to.bytes, std::byte{0});
    const auto convert = [&](uint64_t source_at, uint64_t target_at, uint64_t elements) {
      return convert_elements(source.subspan(source_at, elements * dtype_bytes(stored_.dtype)), file_type_of(stored_.dtype), shape_.dtype,
                              file_.path().string(), record.subspan(target_at, elements * dtype_bytes(shape_.dtype)));
    };
    CHORUS_TRY(convert(0, 0, 2ull * shape_.inner * from.hidden_padded));
    CHORUS_TRY(convert(from.down_offset, to.down_offset, uint64_t{shape_.hidden} * from.inner_padded));
    if (!shape_.biases) return {};
    CHORUS_TRY(check_biases(key, source));
    std::memcpy(record.data() + to.gate_up_bias_offset, bytes.data() + from.gate_up_bias_offset, 2ull * shape_.inner * sizeof(float));
    std::memcpy(record.data() + to.down_bias_offset, bytes.data() + from.down_bias_offset, uint64_t{shape_.hidden} * sizeof(float));
    return {};
  }

  DirectFile file_;
  ExpertShape stored_, shape_;
  std::vector<PackedLayer> layers_;
  std::vector<ExpertHash> hashes_;
  uint64_t bytes_ = 0, stride_ = 0;  // of a stored record
};

Error bad_file(const std::string& where, const std::string& what) { return make_error(ErrorCode::invalid_input, where + ": " + what); }

Result<const TensorInfo*> require_bytes(const formats::TensorStore& store, const std::string& name, std::vector<uint64_t> shape) {
  CHORUS_ASSIGN(const TensorInfo* tensor, store.require(name));
  if (tensor->dtype == formats::FileDType::U8 && tensor->shape == shape) return tensor;
  return bad_file(store.path().string(), "tensor " + quote_text(name) + ": expected U8 of shape " + formats::shape_text(shape) +
                                             ", found " + std::string(formats::file_dtype_name(tensor->dtype)) + " of " +
                                             formats::shape_text(tensor->shape));
}

Result<uint32_t> dimension(const formats::JsonValue& object, std::string_view key, const std::string& where) {
  CHORUS_ASSIGN(const formats::JsonValue* value, object.member(key, where));
  CHORUS_ASSIGN(const uint64_t number, value->as_uint64(where + ": " + std::string(key)));
  if (number == 0 || number > limits::kModelDimensionMax) {
    return bad_file(
        where, std::string(key) + ": expected 1 to " + std::to_string(limits::kModelDimensionMax) + ", found " + std::to_string(number));
  }
  return static_cast<uint32_t>(number);
}

std::string shape_text(const ExpertShape& shape) {
  return std::to_string(shape.hidden) + " x " + std::to_string(shape.inner) + (shape.biases ? " with biases" : " without biases");
}

// The layers of the blueprint as the file has them.
Result<std::vector<PackedLayer>> read_layers(const formats::TensorStore& store, const models::Blueprint& blueprint,
                                             const ExpertShape& stored) {
  const uint64_t stride = packed_stride(ExpertRecord(stored).bytes);
  std::vector<PackedLayer> layers(blueprint.layers.size());
  uint64_t hashes = 0;
  for (uint32_t index = 0; index < layers.size(); ++index) {
    const auto* moe = std::get_if<models::MoeSpec>(&blueprint.layers[index].feed_forward);
    if (moe == nullptr) continue;
    const ExpertShape expected = expert_shape(blueprint, index, stored.dtype);
    if (expected != stored) {
      return bad_file(store.path().string(), "layer " + std::to_string(index) + ": config.json calls for experts of " +
                                                 shape_text(expected) + ", the file holds " + shape_text(stored));
    }
    CHORUS_ASSIGN(const TensorInfo* tensor, require_bytes(store, packed_experts_name(index), {moe->experts, stride}));
    if (tensor->offset % kPackedAlignment != 0) {
      return bad_file(store.path().string(), "tensor " + quote_text(tensor->name) + ": expected at a multiple of " +
                                                 std::to_string(kPackedAlignment) + " bytes, found at " + std::to_string(tensor->offset));
    }
    layers[index] = {moe->experts, tensor->offset, hashes};
    hashes += moe->experts;
  }
  return layers;
}

}  // namespace

std::string packed_experts_json(const ExpertShape& shape) {
  using formats::JsonValue;
  JsonValue object = JsonValue::object();
  object.append("dtype", JsonValue::string(std::string(dtype_name(shape.dtype))));
  object.append("hidden", JsonValue::integer(shape.hidden));
  object.append("inner", JsonValue::integer(shape.inner));
  object.append("biases", JsonValue::boolean(shape.biases));
  return formats::json_dumps(object);
}

Result<ExpertShape> parse_packed_experts(std::string_view json, const std::string& where) {
  auto parsed = formats::parse_json(json);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading " + where);
  ExpertShape shape;
  CHORUS_ASSIGN(const formats::JsonValue* dtype, parsed->member("dtype", where));
  CHORUS_ASSIGN(const std::string_view name, dtype->as_string(where + ": dtype"));
  const auto type = parse_dtype(name);
  if (!type) return bad_file(where, "dtype: expected f32, f16 or bf16, found " + quote_text(name));
  shape.dtype = *type;
  CHORUS_ASSIGN(shape.hidden, dimension(*parsed, "hidden", where));
  CHORUS_ASSIGN(shape.inner, dimension(*parsed, "inner", where));
  CHORUS_ASSIGN(const formats::JsonValue* biases, parsed->member("biases", where));
  CHORUS_ASSIGN(shape.biases, biases->as_bool(where + ": biases"));
  return shape;
}

Result<std::unique_ptr<ExpertStore>> open_packed_store(const models::LanguageCheckpoint& checkpoint, DType dtype, bool direct_io) {
  const formats::TensorStore& store = *checkpoint.store;
  const std::string where = store.path().string();
  const auto text = store.metadata().find(kPackedExpertsKey);
  if (text == store.metadata().end()) return bad_file(where, "__metadata__ has no \"experts\": the file was packed without them");
  CHORUS_ASSIGN(const ExpertShape stored, parse_packed_experts(text->second, where + ": experts"));
  CHORUS_ASSIGN(std::vector<PackedLayer> layers, read_layers(store, checkpoint.blueprint, stored));
  uint64_t count = 0;
  for (const auto& layer : layers) count += layer.experts;
  if (count == 0) return make_error(ErrorCode::invalid_argument, where + ": the model has no experts");
  CHORUS_ASSIGN(const TensorInfo* hashes, require_bytes(store, std::string(kPackedHashes), {count, kHashBytes}));
  std::vector<ExpertHash> table(count);
  std::memcpy(table.data(), store.raw(*hashes).data(), hashes->bytes);
  CHORUS_ASSIGN(DirectFile file, DirectFile::open(checkpoint.path, direct_io));
  return std::unique_ptr<ExpertStore>(std::make_unique<PackedStore>(std::move(file), stored, dtype, std::move(layers), std::move(table)));
}

}  // namespace chorus::experts
