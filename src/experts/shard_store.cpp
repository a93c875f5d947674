#include "experts/shard_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "experts/direct_file.h"
#include "experts/element_runs.h"

namespace chorus::experts {
namespace {

using compute::ExpertRecord;
using compute::ExpertShape;
using formats::FileDType;
using models::ExpertTensors;
using models::MoeSpec;

// A run of numbers of the file that stays a run in the record.
struct Run {
  uint64_t elements = 0;
  uint64_t record_offset = 0;  // bytes
  FileDType type = FileDType::F32;
};

// A piece of a run.
struct Part {
  uint32_t run = 0;  // index into ExpertReader::pieces
  uint64_t first = 0, elements = 0;
};

class ShardStore final : public ExpertStore {
 public:
  ShardStore(ExpertReader reader, const ExpertShape& shape, std::vector<DirectFile> files)
      : reader_(std::move(reader)), shape_(shape), files_(std::move(files)) {}

  uint32_t layers() const override { return reader_.layers(); }
  uint32_t experts(uint32_t layer) const override { return reader_.experts(layer); }
  const ExpertShape& shape() const override { return shape_; }
  bool direct() const override {
    return std::all_of(files_.begin(), files_.end(), [](const auto& file) { return file.direct(); });
  }
  std::string buffered_reason() const override {
    for (const DirectFile& file : files_) {
      if (std::string reason = file.buffered_reason(); !reason.empty()) return reason;  // of the first; the others lie beside it
    }
    return {};
  }
  uint32_t parts() const override { return runs_.empty() ? 1 : static_cast<uint32_t>(parts_.size()); }
  uint64_t stored_bytes() const override { return stored_bytes_; }

  Status read_part(ExpertKey key, uint32_t part, std::span<std::byte> record) const override {
    CHORUS_CHECK(record.size() >= record_bytes() && part < parts());
    const auto pieces = reader_.pieces(key.layer, key.expert);
    CHORUS_CHECK(!pieces.empty());
    auto status = runs_.empty() ? assemble(key, pieces, record) : read_run(pieces, parts_[part], record);
    if (status.ok()) return status;
    return make_error(status.error().code, place_text(key) + ": " + status.error().message);
  }

  Status finish(ExpertKey, std::span<std::byte> record) const override {
    if (runs_.empty()) return {};
    // What lies between the parts of a record is there for alignment only; it is the same in every record.
    for (const auto& [begin, end] : gaps_) std::fill(record.begin() + begin, record.begin() + end, std::byte{0});
    return {};
  }

  // Finds out whether reading run by run gives the records, and cuts the runs.
  void plan(const models::Blueprint& blueprint) {
    const auto first = first_key();
    stored_bytes_ = 0;
    for (const auto& piece : reader_.pieces(first.layer, first.expert)) stored_bytes_ += piece.bytes;
    if (!keeps_runs(blueprint)) return;
    const ExpertRecord layout(shape_);
    const uint64_t element = dtype_bytes(shape_.dtype);
    const uint64_t gate_elements = uint64_t{shape_.inner} * shape_.hidden;
    const auto pieces = reader_.pieces(first.layer, first.expert);
    if (pieces.size() == 3) {
      runs_ = {{gate_elements, 0, pieces[0].tensor->dtype},
               {gate_elements, gate_elements * element, pieces[1].tensor->dtype},
               {gate_elements, layout.down_offset, pieces[2].tensor->dtype}};
    } else {
      runs_ = {{2 * gate_elements, 0, pieces[0].tensor->dtype}, {gate_elements, layout.down_offset, pieces[1].tensor->dtype}};
    }
    gaps_ = {{2 * gate_elements * element, layout.down_offset}, {layout.down_offset + gate_elements * element, layout.bytes}};
    for (uint32_t run = 0; run < runs_.size(); ++run) {
      const uint64_t step = DirectFile::kStagingBytes / formats::file_dtype_bytes(runs_[run].type);
      for (uint64_t at = 0; at < runs_[run].elements; at += step) parts_.push_back({run, at, std::min(step, runs_[run].elements - at)});
    }
  }

 private:
  ExpertKey first_key() const {
    uint32_t layer = 0;
    while (experts(layer) == 0) ++layer;
    return {layer, 0};
  }

  bool keeps_runs(const models::Blueprint& blueprint) const {
    const ExpertRecord layout(shape_);
    if (shape_.biases || layout.hidden_padded != shape_.hidden || layout.inner_padded != shape_.inner) return false;
    const ExpertKey first = first_key();
    const auto expected = reader_.pieces(first.layer, first.expert);
    for (uint32_t layer = 0; layer < layers(); ++layer) {
      const auto* moe = std::get_if<MoeSpec>(&blueprint.layers[layer].feed_forward);
      if (moe == nullptr) continue;
      if (moe->tensors.form != ExpertTensors::Form::separate && moe->tensors.form != ExpertTensors::Form::fused) return false;
      for (uint32_t expert = 0; expert < experts(layer); ++expert) {
        const auto pieces = reader_.pieces(layer, expert);
        const auto same_type = [](const ExpertPiece& a, const ExpertPiece& b) { return a.tensor->dtype == b.tensor->dtype; };
        if (!std::equal(pieces.begin(), pieces.end(), expected.begin(), expected.end(), same_type)) return false;
      }
    }
    return true;
  }

  Status read_run(std::span<const ExpertPiece> pieces, const Part& part, std::span<std::byte> record) const {
    const Run& run = runs_[part.run];
    const ExpertPiece& piece = pieces[part.run];
    const uint64_t element = dtype_bytes(shape_.dtype);
    const auto out = record.subspan(run.record_offset + part.first * element, part.elements * element);
    const uint64_t offset = piece.offset + part.first * formats::file_dtype_bytes(run.type);
    return read_elements(files_[piece.tensor->file], offset, run.type, shape_.dtype, "tensor " + quote_text(piece.tensor->name), out);
  }

  Status assemble(ExpertKey key, std::span<const ExpertPiece> pieces, std::span<std::byte> record) const {
    std::vector<std::byte> bytes(stored_size(pieces));
    std::vector<std::span<const std::byte>> raw;
    uint64_t at = 0;
    for (const auto& piece : pieces) {
      const auto out = std::span(bytes).subspan(at, piece.bytes);
      CHORUS_TRY(files_[piece.tensor->file].read(piece.offset, out));
      raw.push_back(out);
      at += piece.bytes;
    }
    return reader_.assemble(key.layer, key.expert, raw, record.first(record_bytes()));
  }

  static uint64_t stored_size(std::span<const ExpertPiece> pieces) {
    uint64_t bytes = 0;
    for (const auto& piece : pieces) bytes += piece.bytes;
    return bytes;
  }

  ExpertReader reader_;
  ExpertShape shape_;
  std::vector<DirectFile> files_;  // as TensorStore::files()
  std::vector<Run> runs_;          // empty: experts are assembled
  std::vector<Part> parts_;
  std::vector<std::pair<uint64_t, uint64_t>> gaps_;  // bytes of the record
  uint64_t stored_bytes_ = 0;
};

Result<ExpertShape> one_shape(const ExpertReader& reader) {
  std::optional<ExpertShape> shape;
  for (uint32_t layer = 0; layer < reader.layers(); ++layer) {
    if (reader.experts(layer) == 0) continue;
    if (!shape) shape = reader.shape(layer);
    if (reader.shape(layer) == *shape) continue;
    return make_error(ErrorCode::unsupported, "layer " + std::to_string(layer) + ": its experts have " +
                                                  std::to_string(reader.shape(layer).inner) + " inner units, those before have " +
                                                  std::to_string(shape->inner) + "; experts under a budget must have one shape");
  }
  if (!shape) return make_error(ErrorCode::invalid_argument, "expert store: the model has no experts");
  return *shape;
}

}  // namespace

Result<std::unique_ptr<ExpertStore>> open_shard_store(const models::LanguageCheckpoint& checkpoint, DType dtype, bool direct_io) {
  CHORUS_ASSIGN(ExpertReader reader, ExpertReader::open(checkpoint.store, checkpoint.blueprint, dtype));
  CHORUS_ASSIGN(const ExpertShape shape, one_shape(reader));
  std::vector<DirectFile> files;
  for (const auto& mapped : checkpoint.store->files()) {
    CHORUS_ASSIGN(DirectFile file, DirectFile::open(mapped.path(), direct_io));
    files.push_back(std::move(file));
  }
  auto store = std::make_unique<ShardStore>(std::move(reader), shape, std::move(files));
  store->plan(checkpoint.blueprint);
  return std::unique_ptr<ExpertStore>(std::move(store));
}

}  // namespace chorus::experts
