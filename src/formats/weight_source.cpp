#include "formats/weight_source.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/bytes.h"
#include "formats/convert.h"
#include "formats/weight_table.h"

namespace chorus::formats {
namespace {

// Parts of multimodal and multi-token-prediction checkpoints, whatever the backbone's prefix.
constexpr std::string_view kIgnoredPrefixes[] = {"model.visual.", "visual.", "vision_tower.", "model.mtp.", "mtp.", "language_model.mtp."};
constexpr std::string_view kHeadNames[] = {"lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight"};
constexpr std::string_view kRotaryBuffer = "rotary_emb.inv_freq";  // old files store the table that RoPE derives anyway

class StoredSource final : public WeightSource {
 public:
  StoredSource(std::shared_ptr<const TensorStore> store, const StoredNames& stored_names) : store_(std::move(store)) {
    for (const auto& [name, stored] : stored_names) tensors_.emplace(name, store_->find(stored));
  }

  bool has(std::string_view name) const override { return tensors_.contains(name); }

  Result<std::vector<uint64_t>> shape(std::string_view name) const override {
    CHORUS_ASSIGN(const TensorInfo* tensor, require(name));
    return tensor->shape;
  }

  Result<FileDType> stored_type(std::string_view name) const override {
    CHORUS_ASSIGN(const TensorInfo* tensor, require(name));
    return tensor->dtype;
  }

  Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const override {
    CHORUS_ASSIGN(const TensorInfo* tensor, require(name));
    const MatrixShape matrix = matrix_shape(tensor->shape);
    if (first_row > matrix.rows || row_count > matrix.rows - first_row || out.size() != row_count * matrix.cols) {
      return make_error(ErrorCode::invalid_argument, "weight " + quote_text(name) + ": rows " + std::to_string(first_row) + " + " +
                                                         std::to_string(row_count) + " into " + std::to_string(out.size()) +
                                                         " elements asked of " + std::to_string(matrix.rows) + " rows of " +
                                                         std::to_string(matrix.cols));
    }
    return store_->read_f32(*tensor, first_row * matrix.cols, out);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

 private:
  Result<const TensorInfo*> require(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
    return make_error(ErrorCode::not_found, store_->path().string() + ": no weight " + quote_text(name));
  }

  std::shared_ptr<const TensorStore> store_;
  std::map<std::string, const TensorInfo*, std::less<>> tensors_;
};

Result<std::string_view> find_prefix(const TensorStore& store) {
  for (const std::string_view prefix : kBackbonePrefixes) {
    if (store.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  return make_error(ErrorCode::not_found, store.path().string() +
                                              ": no tensor \"embed_tokens.weight\", with no prefix or with \"model.\", "
                                              "\"model.language_model.\" or \"language_model.model.\"");
}

bool is_ignored(std::string_view name, std::string_view prefix, std::span<const std::string> also_ignored) {
  for (const std::string_view ignored : kIgnoredPrefixes) {
    if (name.starts_with(ignored)) return true;
  }
  if (name.ends_with(kRotaryBuffer)) return true;
  if (std::find(also_ignored.begin(), also_ignored.end(), name) != also_ignored.end()) return true;
  return !name.starts_with(prefix);
}

Status check_tensor(const TensorInfo& tensor, const WeightShape& expected, const std::string& where) {
  if (tensor.shape != expected.shape) {
    return make_error(ErrorCode::invalid_input, where + ": tensor " + quote_text(tensor.name) + ": config.json calls for shape " +
                                                    shape_text(expected.shape) + ", found " + shape_text(tensor.shape));
  }
  return check_weight_type(tensor, where);
}

}  // namespace

Status check_weight_type(const TensorInfo& tensor, std::string_view where) {
  if (tensor.dtype == FileDType::F32 || tensor.dtype == FileDType::F16 || tensor.dtype == FileDType::BF16) return {};
  return make_error(ErrorCode::unsupported, std::string(where) + ": tensor " + quote_text(tensor.name) +
                                                ": expected F32, F16 or BF16, found " + std::string(file_dtype_name(tensor.dtype)));
}

Status check_finite(std::span<const float> values, std::string_view what, uint64_t first) {
  const auto bad = first_not_finite(values);
  if (!bad) return {};
  return make_error(ErrorCode::invalid_input, std::string(what) + ": element " + std::to_string(first + *bad) + " is " +
                                                  (std::isnan(values[*bad]) ? "NaN" : "infinite") + ", expected a finite number");
}

Result<StoredWeights> open_stored_weights(TensorStore store, const TextConfig& config, std::span<const std::string> also_ignored) {
  const std::string where = store.path().string();
  CHORUS_ASSIGN(const std::string_view prefix, find_prefix(store));
  StoredNames stored_names;
  std::unordered_map<std::string, bool> taken;
  for (const WeightShape& expected : backbone_weights(config)) {
    const std::string stored = std::string(prefix) + expected.name;
    CHORUS_ASSIGN(const TensorInfo* tensor, store.require(stored));
    CHORUS_TRY(check_tensor(*tensor, expected, where));
    stored_names.emplace(expected.name, stored);
    taken.emplace(stored, true);
  }
  for (const std::string_view name : kHeadNames) {
    const TensorInfo* tensor = store.find(name);
    if (tensor == nullptr) continue;
    const WeightShape expected = lm_head_weight(config);
    CHORUS_TRY(check_tensor(*tensor, expected, where));
    if (!stored_names.emplace(expected.name, tensor->name).second) {
      return make_error(ErrorCode::invalid_input, where + ": two language heads, " + quote_text(stored_names.find(expected.name)->second) +
                                                      " and " + quote_text(tensor->name));
    }
    taken.emplace(tensor->name, true);
  }
  StoredWeights weights;
  for (const auto& tensor : store.tensors()) {
    if (taken.contains(tensor.name)) continue;
    if (!is_ignored(tensor.name, prefix, also_ignored)) {
      return make_error(ErrorCode::unsupported, where + ": tensor " + quote_text(tensor.name) + " " + shape_text(tensor.shape) +
                                                    " is not part of the model that config.json describes");
    }
    weights.ignored.push_back(tensor.name);
  }
  std::sort(weights.ignored.begin(), weights.ignored.end());
  CHORUS_ASSIGN(weights.source, make_weight_source(std::make_shared<const TensorStore>(std::move(store)), stored_names));
  return weights;
}

Result<std::unique_ptr<WeightSource>> make_weight_source(std::shared_ptr<const TensorStore> store, const StoredNames& stored_names) {
  for (const auto& [name, stored] : stored_names) CHORUS_TRY(store->require(stored));
  return std::unique_ptr<WeightSource>(std::make_unique<StoredSource>(std::move(store), stored_names));
}

}  // namespace chorus::formats
