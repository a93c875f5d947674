#include "experts/expert_reader.h"

#include <cmath>

#include "base/bytes.h"
#include "experts/expert_shape.h"
#include "experts/expert_values.h"
#include "models/blueprint_tensors.h"

namespace chorus::experts {

using compute::ExpertRecord;
using formats::FileDType;
using formats::TensorInfo;
using models::expert_tensor_name;
using models::ExpertTensors;
using models::MoeSpec;

namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";  // what follows a tensor's name in MXFP4
constexpr uint32_t kMxfp4Block = 32;
constexpr float kHalfEnd = 65520;  // from here on f16 rounds to infinity

bool is_float(FileDType type) { return type == FileDType::F32 || type == FileDType::F16 || type == FileDType::BF16; }

std::string joined(const std::string& name, std::string_view suffix) { return name + std::string(suffix); }

bool has_biases(const ExpertTensors& tensors) { return !tensors.gate_up_bias.empty(); }

std::string place(uint32_t layer, uint32_t expert) { return "layer " + std::to_string(layer) + ", expert " + std::to_string(expert); }

// One expert on its way into a record.
class Assembly {
 public:
  Assembly(const MoeSpec& spec, const compute::ExpertShape& shape, std::vector<ExpertPiece> pieces,
           std::span<const std::span<const std::byte>> raw, std::span<std::byte> record)
      : spec_(spec), shape_(shape), layout_(shape), pieces_(std::move(pieces)), raw_(raw), record_(record) {}

  Status run() {
    switch (spec_.tensors.form) {
      case ExpertTensors::Form::separate:
        CHORUS_TRY(gate_up_rows(plain(0, inner() * hidden()), 0, 1, 0, inner(), 0));
        CHORUS_TRY(gate_up_rows(plain(1, inner() * hidden()), 0, 1, inner(), inner(), 1));
        return down_rows(plain(2, hidden() * inner()), 2);
      case ExpertTensors::Form::fused:
        CHORUS_TRY(gate_up_rows(plain(0, 2 * inner() * hidden()), 0, 1, 0, 2 * inner(), 0));
        return down_rows(plain(1, hidden() * inner()), 1);
      case ExpertTensors::Form::interleaved:
        CHORUS_TRY(alternating_rows(transposed(0, hidden(), 2 * inner()), 0));
        CHORUS_TRY(down_rows(transposed(1, inner(), hidden()), 1));
        return biases(2);
      case ExpertTensors::Form::mxfp4:
        CHORUS_TRY(alternating_rows(mxfp4(0, 2 * inner() * hidden()), 0));
        CHORUS_TRY(down_rows(mxfp4(2, hidden() * inner()), 2));
        return biases(4);
    }
    return make_error(ErrorCode::internal, "expert tensors: a form that does not exist");
  }

 private:
  uint64_t hidden() const { return shape_.hidden; }
  uint64_t inner() const { return shape_.inner; }

  std::span<const float> plain(size_t piece, uint64_t count) {
    values_.resize(count);
    widen(pieces_[piece].tensor->dtype, raw_[piece].data(), values_);
    return values_;
  }
  std::span<const float> transposed(size_t piece, uint64_t rows, uint64_t cols) {
    const auto source = plain(piece, rows * cols);
    turned_.resize(rows * cols);
    transpose(source, rows, cols, turned_);
    return turned_;
  }
  // The piece after it holds the scales.
  std::span<const float> mxfp4(size_t piece, uint64_t count) {
    values_.resize(count);
    dequantize_mxfp4(raw_[piece], raw_[piece + 1], values_);
    return values_;
  }

  // Rows `first`, `first + step` ... of values to rows [row, row + rows) of gate_up.
  Status gate_up_rows(std::span<const float> values, uint64_t first, uint64_t step, uint64_t row, uint64_t rows, size_t piece) {
    std::byte* out = record_.data() + row * layout_.hidden_padded * dtype_bytes(shape_.dtype);
    return check(store_rows(values, first, step, rows, hidden(), layout_.hidden_padded, shape_.dtype, out), piece);
  }
  // gate, up, gate, up ... to all gates, then all ups.
  Status alternating_rows(std::span<const float> values, size_t piece) {
    CHORUS_TRY(gate_up_rows(values, 0, 2, 0, inner(), piece));
    return gate_up_rows(values, 1, 2, inner(), inner(), piece);
  }
  Status down_rows(std::span<const float> values, size_t piece) {
    std::byte* out = record_.data() + layout_.down_offset;
    return check(store_rows(values, 0, 1, hidden(), inner(), layout_.inner_padded, shape_.dtype, out), piece);
  }
  Status biases(size_t piece) {
    if (!shape_.biases) return {};
    const auto gate_up = plain(piece, 2 * inner());
    std::byte* out = record_.data() + layout_.gate_up_bias_offset;
    CHORUS_TRY(check(store_rows(gate_up, 0, 2, inner(), 1, 1, DType::f32, out), piece, DType::f32));
    CHORUS_TRY(check(store_rows(gate_up, 1, 2, inner(), 1, 1, DType::f32, out + inner() * sizeof(float)), piece, DType::f32));
    const auto down = plain(piece + 1, hidden());
    out = record_.data() + layout_.down_bias_offset;
    return check(store_rows(down, 0, 1, 1, hidden(), hidden(), DType::f32, out), piece + 1, DType::f32);
  }

  Status check(float largest, size_t piece) const { return check(largest, piece, shape_.dtype); }
  Status check(float largest, size_t piece, DType type) const {
    const std::string name = "tensor " + quote_text(pieces_[piece].tensor->name);
    if (!std::isfinite(largest)) return make_error(ErrorCode::invalid_input, name + ": expected finite numbers, found NaN or infinity");
    if (type != DType::f16 || largest < kHalfEnd) return {};
    return make_error(ErrorCode::unsupported,
                      name + ": f16 holds magnitudes below 65520, found " + std::to_string(largest) + "; bf16 and f32 hold it");
  }

  const MoeSpec& spec_;
  const compute::ExpertShape& shape_;
  ExpertRecord layout_;
  std::vector<ExpertPiece> pieces_;
  std::span<const std::span<const std::byte>> raw_;
  std::span<std::byte> record_;
  std::vector<float> values_, turned_;
};

}  // namespace

Result<ExpertReader> ExpertReader::open(std::shared_ptr<const formats::TensorStore> store, const models::Blueprint& blueprint,
                                        DType dtype) {
  ExpertReader reader;
  reader.store_ = std::move(store);
  for (const models::LayerSpec& spec : blueprint.layers) {
    Layer& layer = reader.layers_.emplace_back();
    const auto* moe = std::get_if<MoeSpec>(&spec.feed_forward);
    if (!moe) continue;
    layer.spec = *moe;
    layer.shape = expert_shape(blueprint, reader.layers() - 1, dtype);
    CHORUS_TRY(reader.check_layer(reader.layers() - 1));
  }
  return reader;
}

Status ExpertReader::check_tensor(uint32_t layer, const std::string& name, const std::vector<uint64_t>& shape, bool blocks) const {
  auto tensor = store_->require(name);
  if (!tensor) return std::move(tensor).error().with_context("looking for the experts of layer " + std::to_string(layer));
  const std::string where = store_->path().string() + ": tensor " + quote_text(name);
  if ((*tensor)->shape != shape) {
    return make_error(ErrorCode::invalid_input, where + ": config.json calls for shape " + formats::shape_text(shape) + ", found " +
                                                    formats::shape_text((*tensor)->shape));
  }
  const FileDType type = (*tensor)->dtype;
  if (blocks ? type == FileDType::U8 : is_float(type)) return {};
  return make_error(ErrorCode::unsupported, where + ": expected " + (blocks ? "U8" : "F32, F16 or BF16") + ", found " +
                                                std::string(formats::file_dtype_name(type)));
}

Status ExpertReader::check_layer(uint32_t index) const {
  const MoeSpec& spec = layers_[index].spec;
  const ExpertTensors& t = spec.tensors;
  const uint64_t experts = spec.experts, hidden = layers_[index].shape.hidden, inner = spec.inner;
  switch (t.form) {
    case ExpertTensors::Form::separate:
      for (uint32_t expert = 0; expert < spec.experts; ++expert) {
        CHORUS_TRY(check_tensor(index, expert_tensor_name(t.gate, expert), {inner, hidden}, false));
        CHORUS_TRY(check_tensor(index, expert_tensor_name(t.up, expert), {inner, hidden}, false));
        CHORUS_TRY(check_tensor(index, expert_tensor_name(t.down, expert), {hidden, inner}, false));
      }
      return {};
    case ExpertTensors::Form::fused:
      CHORUS_TRY(check_tensor(index, t.gate_up, {experts, 2 * inner, hidden}, false));
      return check_tensor(index, t.down, {experts, hidden, inner}, false);
    case ExpertTensors::Form::interleaved:
      CHORUS_TRY(check_tensor(index, t.gate_up, {experts, hidden, 2 * inner}, false));
      CHORUS_TRY(check_tensor(index, t.down, {experts, inner, hidden}, false));
      break;
    case ExpertTensors::Form::mxfp4:
      if (hidden % kMxfp4Block != 0 || inner % kMxfp4Block != 0) {
        return make_error(ErrorCode::invalid_input, "layer " + std::to_string(index) + ": MXFP4 experts of " + std::to_string(hidden) +
                                                        " x " + std::to_string(inner) + " numbers: expected multiples of 32");
      }
      CHORUS_TRY(check_tensor(index, joined(t.gate_up, kBlocks), {experts, 2 * inner, hidden / kMxfp4Block, kMxfp4Block / 2}, true));
      CHORUS_TRY(check_tensor(index, joined(t.gate_up, kScales), {experts, 2 * inner, hidden / kMxfp4Block}, true));
      CHORUS_TRY(check_tensor(index, joined(t.down, kBlocks), {experts, hidden, inner / kMxfp4Block, kMxfp4Block / 2}, true));
      CHORUS_TRY(check_tensor(index, joined(t.down, kScales), {experts, hidden, inner / kMxfp4Block}, true));
      break;
  }
  if (!has_biases(t)) return {};
  CHORUS_TRY(check_tensor(index, t.gate_up_bias, {experts, 2 * inner}, false));
  return check_tensor(index, t.down_bias, {experts, hidden}, false);
}

// The `index`-th of `count` equal parts of a tensor, which open() found.
ExpertPiece ExpertReader::slice(const std::string& name, uint64_t index, uint64_t count) const {
  const TensorInfo* tensor = store_->find(name);
  const uint64_t bytes = tensor->bytes / count;
  return {tensor, tensor->offset + index * bytes, bytes};
}

std::vector<ExpertPiece> ExpertReader::pieces(uint32_t layer, uint32_t expert) const {
  if (layer >= layers() || expert >= experts(layer)) return {};
  const ExpertTensors& t = layers_[layer].spec.tensors;
  const uint64_t count = experts(layer);
  std::vector<ExpertPiece> found;
  switch (t.form) {
    case ExpertTensors::Form::separate:
      for (const std::string* name : {&t.gate, &t.up, &t.down}) found.push_back(slice(expert_tensor_name(*name, expert), 0, 1));
      return found;
    case ExpertTensors::Form::fused:
    case ExpertTensors::Form::interleaved:
      for (const std::string* name : {&t.gate_up, &t.down}) found.push_back(slice(*name, expert, count));
      break;
    case ExpertTensors::Form::mxfp4:
      for (const std::string* name : {&t.gate_up, &t.down}) {
        for (const std::string_view suffix : {kBlocks, kScales}) found.push_back(slice(joined(*name, suffix), expert, count));
      }
      break;
  }
  if (has_biases(t)) {
    for (const std::string* name : {&t.gate_up_bias, &t.down_bias}) found.push_back(slice(*name, expert, count));
  }
  return found;
}

Status ExpertReader::assemble(uint32_t layer, uint32_t expert, std::span<const std::span<const std::byte>> raw,
                              std::span<std::byte> record) const {
  std::vector<ExpertPiece> found = pieces(layer, expert);
  CHORUS_CHECK(!found.empty() && raw.size() == found.size());
  for (size_t i = 0; i < found.size(); ++i) CHORUS_CHECK(raw[i].size() == found[i].bytes);
  CHORUS_CHECK(record.size() == ExpertRecord(shape(layer)).bytes);
  const MoeSpec& spec = layers_[layer].spec;
  auto done = Assembly(spec, shape(layer), std::move(found), raw, record).run();
  if (!done) return make_error(done.error().code, place(layer, expert) + ": " + done.error().message);
  return {};
}

Status ExpertReader::read(uint32_t layer, uint32_t expert, std::span<std::byte> record) const {
  const std::vector<ExpertPiece> found = pieces(layer, expert);
  std::vector<std::span<const std::byte>> raw;
  for (const ExpertPiece& piece : found) {
    raw.push_back(store_->raw(*piece.tensor).subspan(piece.offset - piece.tensor->offset, piece.bytes));
  }
  CHORUS_TRY(assemble(layer, expert, raw, record));
  for (const ExpertPiece& piece : found) store_->files()[piece.tensor->file].drop(piece.offset, piece.bytes);
  return {};
}

}  // namespace chorus::experts
