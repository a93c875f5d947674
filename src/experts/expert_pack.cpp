#include "experts/expert_pack.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "experts/expert_hash.h"
#include "experts/packed_store.h"
#include "formats/model_files.h"
#include "models/blueprint_tensors.h"

namespace chorus::experts {
namespace {

using formats::FileDType;
using formats::TensorToWrite;

constexpr uint64_t kCopyBytes = 8 << 20;  // of a dense tensor at a time

using Progress = std::function<void(uint64_t, uint64_t)>;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<std::byte, Free>;

// The records of one layer, and their hashes on the way.
Status write_layer(const ExpertStore& store, uint32_t layer, const std::function<void()>& wrote_one, std::vector<ExpertHash>& hashes,
                   const TensorToWrite::Sink& sink) {
  const uint64_t bytes = store.record_bytes(), stride = packed_stride(bytes);
  const AlignedBytes memory(static_cast<std::byte*>(std::aligned_alloc(kPackedAlignment, stride)));
  if (memory == nullptr) return make_error(ErrorCode::out_of_memory, "no memory for an expert of " + std::to_string(bytes) + " bytes");
  const std::span<std::byte> record(memory.get(), stride);
  for (uint32_t expert = 0; expert < store.experts(layer); ++expert) {
    CHORUS_TRY(read_record(store, {layer, expert}, record));
    std::memset(memory.get() + bytes, 0, stride - bytes);
    hashes.push_back(hash_of(record.first(bytes)));
    CHORUS_TRY(sink(record));
    wrote_one();
  }
  return {};
}

void add_experts(const ExpertStore& store, const Progress& progress, std::vector<ExpertHash>& hashes, std::vector<TensorToWrite>& tensors) {
  const uint64_t stride = packed_stride(store.record_bytes());
  uint64_t count = 0;
  const auto wrote_one = [&hashes, &store, progress] {
    if (progress) progress(hashes.size() * store.record_bytes(), store.total_bytes());
  };
  for (uint32_t layer = 0; layer < store.layers(); ++layer) {
    if (store.experts(layer) == 0) continue;
    count += store.experts(layer);
    tensors.push_back({packed_experts_name(layer),
                       FileDType::U8,
                       {store.experts(layer), stride},
                       [&store, layer, wrote_one, &hashes](const TensorToWrite::Sink& sink) {
                         return write_layer(store, layer, wrote_one, hashes, sink);
                       }});
  }
  // Written after the experts, which stand before it: their sizes keep the 4 KiB border.
  tensors.push_back({std::string(kPackedHashes), FileDType::U8, {count, kHashBytes}, [&hashes](const TensorToWrite::Sink& sink) {
                       return sink(std::as_bytes(std::span(hashes)));
                     }});
}

Status copy_tensor(const formats::TensorStore& store, const formats::TensorInfo& tensor, const TensorToWrite::Sink& sink) {
  const auto bytes = store.raw(tensor);
  for (uint64_t at = 0; at < bytes.size(); at += kCopyBytes) {
    const uint64_t count = std::min<uint64_t>(kCopyBytes, bytes.size() - at);
    CHORUS_TRY(sink(bytes.subspan(at, count)));
    store.files()[tensor.file].drop(tensor.offset + at, count);
  }
  return {};
}

Status add_resident(const models::LanguageCheckpoint& checkpoint, std::vector<TensorToWrite>& tensors) {
  for (const auto& [name, shape] : models::resident_tensors(checkpoint.blueprint)) {
    CHORUS_ASSIGN(const formats::TensorInfo* tensor, checkpoint.store->require(name));
    tensors.push_back({name, tensor->dtype, shape,
                       [&checkpoint, tensor](const TensorToWrite::Sink& sink) { return copy_tensor(*checkpoint.store, *tensor, sink); }});
  }
  return {};
}

// The model's own files could not be written again once they are overwritten.
Status check_target(const formats::ModelFiles& files, const std::filesystem::path& out) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(out, error).parent_path();
  const std::string name = out.filename().string();
  const bool same = std::filesystem::exists(out, error) && std::filesystem::equivalent(out, files.path, error);
  const bool own = !files.packed && std::filesystem::equivalent(folder, files.path, error) &&
                   (name.starts_with("model") || name.ends_with(".json") || name.ends_with(".jinja"));
  if (!same && !own) return {};
  return make_error(ErrorCode::invalid_argument,
                    out.string() + ": expected another file than those of the model itself; packing " + files.path.string());
}

}  // namespace

Status write_model_pack(const models::LanguageCheckpoint& checkpoint, const ExpertStore* store, const std::filesystem::path& out,
                        const Progress& progress) {
  const formats::ModelFiles& files = checkpoint.files;
  CHORUS_TRY(check_target(files, out));
  std::vector<TensorToWrite> tensors;
  std::vector<ExpertHash> hashes;
  if (store != nullptr) add_experts(*store, progress, hashes, tensors);
  for (const auto& file : formats::model_text_files()) {
    const auto& text = files.*file.text;
    if (!text) continue;
    tensors.push_back(
        {file.name, FileDType::U8, {text->size()}, [&text](const TensorToWrite::Sink& sink) { return sink(as_bytes(*text)); }});
  }
  CHORUS_TRY(add_resident(checkpoint, tensors));
  std::map<std::string, std::string> metadata{{"format", std::string(formats::kModelPackFormat)},
                                              {"version", std::string(formats::kModelPackVersion)},
                                              {"config", checkpoint.config_json}};
  if (store != nullptr) metadata.emplace(kPackedExpertsKey, packed_experts_json(store->shape()));
  auto written = formats::write_safetensors(out, metadata, std::move(tensors), kPackedAlignment);
  if (!written.ok()) return std::move(written).error().with_context("packing " + checkpoint.path.string());
  return {};
}

}  // namespace chorus::experts
