#include "formats/head_file.h"

#include <cmath>
#include <memory>

#include "base/bytes.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/mapped_file.h"
#include "formats/json.h"
#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "formats/torch_archive.h"

namespace chorus::formats {
namespace {

using Kind = PickleNode::Kind;

constexpr uint32_t kHeadDimDefault = 256;
constexpr uint32_t kLoraRankMax = 65536;

// One of the four weights, with its name in the file.
struct HeadPart {
  std::string_view name;
  std::vector<float> PointerHead::*values;
  bool is_matrix;
};
constexpr HeadPart kHeadParts[] = {{"q.weight", &PointerHead::q_weight, true},
                                   {"q.bias", &PointerHead::q_bias, false},
                                   {"k.weight", &PointerHead::k_weight, true},
                                   {"k.bias", &PointerHead::k_bias, false}};

Error malformed(const std::string& what) { return make_error(ErrorCode::invalid_input, what); }

// [head_dim, hidden] for a matrix, [head_dim] for a bias. The first matrix sets hidden_size.
Status check_part_shape(const HeadPart& part, std::span<const uint64_t> shape, PointerHead& head, std::string_view where) {
  const std::string what = std::string(where) + ": head " + std::string(part.name);
  if (part.is_matrix && head.hidden_size == 0) {
    if (shape.size() != 2 || shape[1] < 1 || shape[1] > limits::kModelDimensionMax) {
      return malformed(what + ": expected shape [" + std::to_string(head.head_dim) + ", hidden size], found " + shape_text(shape));
    }
    head.hidden_size = static_cast<uint32_t>(shape[1]);
  }
  std::vector<uint64_t> expected{head.head_dim};
  if (part.is_matrix) expected.push_back(head.hidden_size);
  if (!std::equal(expected.begin(), expected.end(), shape.begin(), shape.end())) {
    return malformed(what + ": expected shape " + shape_text(expected) + ", found " + shape_text(shape));
  }
  return {};
}

Status check_head_dim(uint64_t head_dim, const std::string& where) {
  if (head_dim >= 1 && head_dim <= limits::kModelDimensionMax) return {};
  return malformed(where + ": head_dim: expected 1 to " + std::to_string(limits::kModelDimensionMax) + ", found " +
                   std::to_string(head_dim));
}

Status check_metadata(const HeadMetadata& metadata, const std::string& where) {
  if (!(std::isfinite(metadata.temperature) && metadata.temperature > 0)) {
    return malformed(where + ": temperature: expected a finite number above 0, found " + python_float_text(metadata.temperature));
  }
  if (metadata.lora_rank > kLoraRankMax) {
    return malformed(where + ": lora: expected a rank of at most " + std::to_string(kLoraRankMax) + ", found " +
                     std::to_string(metadata.lora_rank));
  }
  if (metadata.weights && *metadata.weights != "lora" && *metadata.weights != "full") {
    return make_error(ErrorCode::unsupported, where + ": weights: expected \"lora\" or \"full\", found " + quote_text(*metadata.weights));
  }
  return {};
}

// head.pt

// A dictionary of the pickle, with unique text keys.
class PickleDict {
 public:
  static Result<PickleDict> open(const PickleValue& pickle, uint32_t index, std::string where) {
    const PickleNode& node = pickle.nodes[index];
    if (node.kind != Kind::dict) return malformed(where + ": expected a dictionary, found a " + pickle_kind_name(node.kind));
    PickleDict dict(pickle, std::move(where));
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const PickleNode& key = pickle.nodes[node.items[i]];
      if (key.kind != Kind::text) return malformed(dict.where_ + ": expected texts as keys, found a " + pickle_kind_name(key.kind));
      if (!dict.entries_.emplace(key.text, node.items[i + 1]).second)
        return malformed(dict.where_ + ": the key " + quote_text(key.text) + " occurs twice");
    }
    return dict;
  }

  // Null when the key is absent or None.
  const PickleNode* find(std::string_view key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    const PickleNode& node = pickle_->nodes[found->second];
    return node.kind == Kind::none ? nullptr : &node;
  }

  Result<const PickleNode*> require(std::string_view key, Kind kind) const {
    const PickleNode* node = find(key);
    if (node == nullptr) return malformed(what(key) + ": missing");
    CHORUS_TRY(check_kind(*node, key, kind));
    return node;
  }

  Result<std::optional<std::string>> text(std::string_view key) const {
    const PickleNode* node = find(key);
    if (node == nullptr) return std::optional<std::string>();
    CHORUS_TRY(check_kind(*node, key, Kind::text));
    return std::optional<std::string>(node->text);
  }

  Result<uint64_t> whole_number(std::string_view key, uint64_t fallback) const {
    const PickleNode* node = find(key);
    if (node == nullptr) return fallback;
    CHORUS_TRY(check_kind(*node, key, Kind::integer));
    if (node->integer < 0) return malformed(what(key) + ": expected 0 or more, found " + std::to_string(node->integer));
    return static_cast<uint64_t>(node->integer);
  }

  uint32_t index_of(std::string_view key) const { return entries_.find(key)->second; }
  std::string what(std::string_view key) const { return where_ + ": " + std::string(key); }

 private:
  PickleDict(const PickleValue& pickle, std::string where) : pickle_(&pickle), where_(std::move(where)) {}

  Status check_kind(const PickleNode& node, std::string_view key, Kind kind) const {
    if (node.kind == kind) return {};
    return malformed(what(key) + ": expected a " + pickle_kind_name(kind) + ", found a " + pickle_kind_name(node.kind));
  }

  const PickleValue* pickle_;
  std::string where_;
  std::map<std::string, uint32_t, std::less<>> entries_;
};

uint64_t storage_element_bytes(StorageType type) { return type == StorageType::f32 ? 4 : 2; }

float storage_element(StorageType type, const char* data, uint64_t element) {
  switch (type) {
    case StorageType::f32:
      return load_unaligned<float>(data + element * 4);
    case StorageType::f16:
      return f16_to_float(load_unaligned<uint16_t>(data + element * 2));
    case StorageType::bf16:
      return bf16_to_float(load_unaligned<uint16_t>(data + element * 2));
  }
  return 0;
}

bool is_contiguous(const PickleNode& tensor) {
  uint64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];  // bounded: the shape was checked
  }
  return true;
}

// The shape is that of a head part, so the element count is at most 2^40.
Result<std::vector<float>> read_tensor(const PickleValue& pickle, const PickleNode& tensor, const TorchArchive& archive,
                                       const std::string& what) {
  const PickleNode& storage = pickle.nodes[tensor.items[0]];
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape) elements *= extent;
  if (!is_contiguous(tensor))
    return make_error(ErrorCode::unsupported, what + ": expected a contiguous tensor, found strides " + shape_text(tensor.strides));
  const auto first = static_cast<uint64_t>(tensor.integer);
  const auto stored = static_cast<uint64_t>(storage.integer);
  if (first > stored || elements > stored - first) {
    return malformed(what + ": elements " + std::to_string(first) + " to " + std::to_string(first + elements) + " of a storage of " +
                     std::to_string(stored));
  }
  CHORUS_ASSIGN(const std::string bytes, archive.read("data/" + storage.text));
  const uint64_t element_bytes = storage_element_bytes(storage.storage_type);
  if (bytes.size() != stored * element_bytes) {
    return malformed(what + ": the pickle claims " + std::to_string(stored * element_bytes) + " bytes of storage " +
                     quote_text(storage.text) + ", the archive holds " + std::to_string(bytes.size()));
  }
  std::vector<float> values(elements);
  for (uint64_t i = 0; i < elements; ++i) values[i] = storage_element(storage.storage_type, bytes.data(), first + i);
  return values;
}

Result<PointerHead> read_head_tensors(const PickleValue& pickle, const PickleDict& top, uint64_t head_dim, const TorchArchive& archive,
                                      const std::string& where) {
  CHORUS_TRY(top.require("head", Kind::dict));
  CHORUS_ASSIGN(const PickleDict dict, PickleDict::open(pickle, top.index_of("head"), where + ": head"));
  PointerHead head;
  head.head_dim = static_cast<uint32_t>(head_dim);
  for (const HeadPart& part : kHeadParts) {  // all shapes before any weight
    CHORUS_ASSIGN(const PickleNode* tensor, dict.require(part.name, Kind::tensor));
    CHORUS_TRY(check_part_shape(part, tensor->shape, head, where));
  }
  for (const HeadPart& part : kHeadParts) {
    CHORUS_ASSIGN(const PickleNode* tensor, dict.require(part.name, Kind::tensor));
    CHORUS_ASSIGN(head.*part.values, read_tensor(pickle, *tensor, archive, dict.what(part.name)));
  }
  return head;
}

// Features of Kev's code that no release uses and this program does not run.
Status refuse_if_set(const PickleDict& top, std::string_view key) {
  const PickleNode* node = top.find(key);
  if (node == nullptr || (node->kind == Kind::boolean && node->integer == 0)) return {};
  return make_error(ErrorCode::unsupported, top.what(key) + ": this program runs false, found another value");
}

Result<HeadMetadata> read_pickle_metadata(const PickleValue& pickle, const PickleDict& top, const std::string& where) {
  HeadMetadata metadata;
  CHORUS_TRY(refuse_if_set(top, "option_isolation"));
  CHORUS_TRY(refuse_if_set(top, "special_embeddings"));
  CHORUS_ASSIGN(auto base, top.text("base"));
  metadata.base = base.value_or("");
  CHORUS_ASSIGN(metadata.base_revision, top.text("base_revision"));
  CHORUS_ASSIGN(metadata.weights, top.text("weights"));
  CHORUS_ASSIGN(auto weights_dtype, top.text("weights_dtype"));
  metadata.weights_dtype = weights_dtype.value_or(metadata.weights_dtype);
  CHORUS_ASSIGN(const uint64_t rank, top.whole_number("lora", 0));
  metadata.lora_rank = static_cast<uint32_t>(std::min<uint64_t>(rank, UINT32_MAX));
  if (const PickleNode* temperature = top.find("temperature")) {
    if (temperature->kind != Kind::floating && temperature->kind != Kind::integer) {
      return malformed(top.what("temperature") + ": expected a number, found a " + pickle_kind_name(temperature->kind));
    }
    metadata.temperature = temperature->kind == Kind::floating ? temperature->floating : static_cast<double>(temperature->integer);
  }
  if (const PickleNode* holdout = top.find("holdout")) {  // provenance: entries that are no texts are left out
    for (const uint32_t item : holdout->kind == Kind::list || holdout->kind == Kind::tuple ? holdout->items : std::vector<uint32_t>()) {
      if (pickle.nodes[item].kind == Kind::text) metadata.holdout.push_back(pickle.nodes[item].text);
    }
  }
  CHORUS_TRY(check_metadata(metadata, where));
  return metadata;
}

// head.safetensors: the four tensors, the other keys of head.pt as texts in __metadata__.

Result<double> parse_number(const std::string& text, const std::string& what) {
  auto parsed = parse_json(text);
  if (!parsed.ok() || !parsed->is_number()) return malformed(what + ": expected a number, found " + quote_text(text));
  return parsed->as_double(what);
}

Result<uint64_t> parse_whole_number(const std::string& text, const std::string& what) {
  auto parsed = parse_json(text);
  if (!parsed.ok()) return malformed(what + ": expected a whole number, found " + quote_text(text));
  return parsed->as_uint64(what);
}

Status read_text_metadata(const std::map<std::string, std::string>& texts, const std::string& where, HeadMetadata& metadata,
                          uint64_t& head_dim) {
  for (const auto& [key, text] : texts) {
    const std::string what = where + ": " + key;
    if (key == "base") metadata.base = text;
    if (key == "base_revision") metadata.base_revision = text;
    if (key == "weights") metadata.weights = text;
    if (key == "weights_dtype") metadata.weights_dtype = text;
    if (key == "temperature") {
      CHORUS_ASSIGN(metadata.temperature, parse_number(text, what));
    }
    if (key == "lora") {
      CHORUS_ASSIGN(const uint64_t rank, parse_whole_number(text, what));
      metadata.lora_rank = static_cast<uint32_t>(std::min<uint64_t>(rank, UINT32_MAX));
    }
    if (key == "head_dim") {
      CHORUS_ASSIGN(head_dim, parse_whole_number(text, what));
    }
    if ((key == "option_isolation" || key == "special_embeddings") && text != "false" && text != "False" && text != "0") {
      return make_error(ErrorCode::unsupported, what + ": this program runs false, found " + quote_text(text));
    }
  }
  return check_metadata(metadata, where);
}

Result<HeadFile> read_head_safetensors(const std::filesystem::path& path) {
  const std::string where = path.string();
  CHORUS_ASSIGN(const TensorStore store, TensorStore::open(path));
  HeadFile file;
  uint64_t head_dim = 0;
  CHORUS_TRY(read_text_metadata(store.metadata(), where, file.metadata, head_dim));
  CHORUS_ASSIGN(const TensorInfo* first, store.require("q.weight"));
  if (head_dim == 0 && !first->shape.empty()) head_dim = first->shape[0];
  CHORUS_TRY(check_head_dim(head_dim, where));
  file.head.head_dim = static_cast<uint32_t>(head_dim);
  for (const HeadPart& part : kHeadParts) {
    CHORUS_ASSIGN(const TensorInfo* tensor, store.require(part.name));
    CHORUS_TRY(check_part_shape(part, tensor->shape, file.head, where));
  }
  for (const HeadPart& part : kHeadParts) {
    const TensorInfo* tensor = store.find(part.name);
    auto& values = file.head.*part.values;
    values.resize(tensor->elements);
    CHORUS_TRY(store.read_f32(*tensor, 0, values));
  }
  return file;
}

}  // namespace

Status check_head(const PointerHead& head, std::string_view where) {
  for (const HeadPart& part : kHeadParts) {
    const auto& values = head.*part.values;
    const uint64_t expected = part.is_matrix ? static_cast<uint64_t>(head.head_dim) * head.hidden_size : head.head_dim;
    const std::string what = std::string(where) + ": head " + std::string(part.name);
    if (values.size() != expected) {
      return malformed(what + ": expected " + std::to_string(expected) + " elements, found " + std::to_string(values.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        return malformed(what + ": element " + std::to_string(i) + " is " + (std::isnan(values[i]) ? "NaN" : "infinite") +
                         ", expected a finite number");
      }
    }
  }
  return {};
}

Result<HeadFile> parse_head_pt(std::span<const std::byte> bytes, std::string_view where) {
  const std::string name(where);
  CHORUS_ASSIGN(const TorchArchive archive, TorchArchive::open(bytes, where));
  CHORUS_ASSIGN(const std::string pickle_bytes, archive.read("data.pkl"));
  CHORUS_ASSIGN(const PickleValue pickle, read_pickle(as_bytes(pickle_bytes), where));
  CHORUS_ASSIGN(const PickleDict top, PickleDict::open(pickle, pickle.root, name));
  HeadFile file;
  CHORUS_ASSIGN(file.metadata, read_pickle_metadata(pickle, top, name));
  CHORUS_ASSIGN(const uint64_t head_dim, top.whole_number("head_dim", kHeadDimDefault));
  CHORUS_TRY(check_head_dim(head_dim, name));
  CHORUS_ASSIGN(file.head, read_head_tensors(pickle, top, head_dim, archive, name));
  CHORUS_TRY(check_head(file.head, where));
  return file;
}

Result<HeadFile> read_head_file(const std::filesystem::path& path) {
  CHORUS_ASSIGN(const MappedFile mapped, MappedFile::open(path));
  if (mapped.bytes().size() > limits::kHeadFileBytesMax) {
    return make_error(ErrorCode::limit_exceeded, path.string() + ": " + std::to_string(mapped.bytes().size()) +
                                                     " bytes, over the limit of " + std::to_string(limits::kHeadFileBytesMax));
  }
  CHORUS_ASSIGN(HeadFile file,
                path.extension() == ".safetensors" ? read_head_safetensors(path) : parse_head_pt(mapped.bytes(), path.string()));
  CHORUS_TRY(check_head(file.head, path.string()));
  CHORUS_ASSIGN(const std::string hash, sha256_hex(mapped.bytes()));
  file.checkpoint_id = "sha256:" + hash;
  return file;
}

}  // namespace chorus::formats
