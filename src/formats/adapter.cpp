#include "formats/adapter.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/limits.h"
#include "formats/convert.h"
#include "formats/json.h"
#include "formats/weight_source.h"

namespace chorus::formats {
namespace {

constexpr std::string_view kTensorPrefix = "base_model.model.";
constexpr std::string_view kSuffixA = ".lora_A.weight";
constexpr std::string_view kSuffixB = ".lora_B.weight";
constexpr uint64_t kRankMax = 65536;

// Settings that must be absent, null, false, 0 or empty: each of them changes the computation or the base weights.
constexpr std::string_view kRefusedSettings[] = {"use_dora",          "use_qalora",
                                                 "use_bdlora",        "lora_bias",
                                                 "fan_in_fan_out",    "modules_to_save",
                                                 "rank_pattern",      "alpha_pattern",
                                                 "layer_replication", "trainable_token_indices",
                                                 "target_parameters", "alora_invocation_tokens",
                                                 "arrow_config",      "kasa_config",
                                                 "monteclora_config", "velora_config"};
// Initialisations that leave the base weights as they are. The others (PiSSA, OLoRA, LoftQ, ...) rewrite them.
constexpr std::string_view kHarmlessInitialisations[] = {"gaussian", "eva", "orthogonal"};

bool is_unset(const JsonValue& value) {
  if (value.is_null()) return true;
  if (const bool* flag = value.boolean_if()) return !*flag;
  if (const std::string* text = value.string_if()) return text->empty();
  if (const std::string* digits = value.integer_digits_if()) return *digits == "0";
  if (value.is_array()) return value.items().empty();
  if (value.is_object()) return value.members().empty();
  return false;
}

// The value of a key, or null when it is absent or JSON null.
const JsonValue* find_set(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Status check_plain_lora(const JsonValue& object, const std::string& where) {
  CHORUS_ASSIGN(const JsonValue* type, object.member("peft_type", where));
  CHORUS_ASSIGN(const std::string_view type_name, type->as_string(where + ": peft_type"));
  if (type_name != "LORA")
    return make_error(ErrorCode::unsupported, where + ": peft_type: this program runs \"LORA\", found " + quote_text(type_name));
  for (const std::string_view key : kRefusedSettings) {
    const JsonValue* value = object.find(key);
    if (value != nullptr && !is_unset(*value)) {
      return make_error(ErrorCode::unsupported, where + ": " + std::string(key) + ": this program runs plain LoRA without it, found " +
                                                    json_kind_name(value->kind()) + " " + quote_text(json_dumps(*value)));
    }
  }
  if (const JsonValue* bias = find_set(object, "bias")) {
    CHORUS_ASSIGN(const std::string_view text, bias->as_string(where + ": bias"));
    if (text != "none") return make_error(ErrorCode::unsupported, where + ": bias: this program runs \"none\", found " + quote_text(text));
  }
  if (const JsonValue* start = find_set(object, "init_lora_weights"); start != nullptr && start->boolean_if() == nullptr) {
    CHORUS_ASSIGN(const std::string_view text, start->as_string(where + ": init_lora_weights"));
    if (std::find(std::begin(kHarmlessInitialisations), std::end(kHarmlessInitialisations), text) == std::end(kHarmlessInitialisations)) {
      return make_error(ErrorCode::unsupported, where + ": init_lora_weights " + quote_text(text) +
                                                    " may have changed the base weights: convert the adapter to plain LoRA first");
    }
  }
  return {};
}

// Target modules as a list of names; empty for patterns and for adapters that cover a part of the layers.
Result<std::vector<std::string>> read_target_modules(const JsonValue& object, const std::string& where) {
  std::vector<std::string> names;
  const JsonValue* targets = find_set(object, "target_modules");
  if (targets == nullptr || !targets->is_array()) return names;
  for (const std::string_view key : {"layers_to_transform", "exclude_modules"}) {
    const JsonValue* value = object.find(key);
    if (value != nullptr && !is_unset(*value)) return names;
  }
  for (const auto& item : targets->items()) {
    CHORUS_ASSIGN(const std::string_view name, item.as_string(where + ": target_modules"));
    names.emplace_back(name);
  }
  return names;
}

struct LoraPair {
  const TensorInfo* a = nullptr;  // [rank, in]
  const TensorInfo* b = nullptr;  // [out, rank]
};

class MergedWeights final : public WeightSource {
 public:
  MergedWeights(std::unique_ptr<WeightSource> base, TensorStore adapter, const AdapterConfig& config)
      : base_(std::move(base)), adapter_(std::move(adapter)), rank_(config.rank), scaling_(static_cast<float>(config.scaling)) {}

  Status match(const AdapterConfig& config);

  bool has(std::string_view name) const override { return base_->has(name); }
  Result<std::vector<uint64_t>> shape(std::string_view name) const override { return base_->shape(name); }
  Result<FileDType> stored_type(std::string_view name) const override { return base_->stored_type(name); }
  std::vector<std::string> names() const override { return base_->names(); }
  Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const override;

 private:
  Status add_tensor(const TensorInfo& tensor);
  Status check_pair(const std::string& name, const LoraPair& pair) const;
  Status check_targets(const AdapterConfig& config) const;

  std::unique_ptr<WeightSource> base_;
  TensorStore adapter_;
  uint32_t rank_;
  float scaling_;
  std::map<std::string, LoraPair, std::less<>> pairs_;
};

Status MergedWeights::add_tensor(const TensorInfo& tensor) {
  const std::string what = adapter_.path().string() + ": tensor " + quote_text(tensor.name);
  const std::string_view name = tensor.name;
  const bool is_a = name.ends_with(kSuffixA);
  if (!name.starts_with(kTensorPrefix) || !(is_a || name.ends_with(kSuffixB))) {
    return make_error(ErrorCode::unsupported, what + ": expected base_model.model.<module>.lora_A.weight or .lora_B.weight");
  }
  const size_t suffix = is_a ? kSuffixA.size() : kSuffixB.size();
  std::string_view module = name.substr(kTensorPrefix.size());
  module.remove_suffix(std::min(suffix, module.size()));
  for (const std::string_view prefix : kBackbonePrefixes) {
    if (!prefix.empty() && module.starts_with(prefix)) {
      module.remove_prefix(prefix.size());
      break;
    }
  }
  const std::string weight = std::string(module) + ".weight";
  if (!base_->has(weight)) return make_error(ErrorCode::invalid_input, what + ": the base has no weight " + quote_text(weight));
  LoraPair& pair = pairs_[weight];
  const TensorInfo*& slot = is_a ? pair.a : pair.b;
  if (slot != nullptr)
    return make_error(ErrorCode::invalid_input,
                      what + ": " + quote_text(weight) + " has two of them, the other is " + quote_text(slot->name));
  slot = &tensor;
  return {};
}

Status MergedWeights::check_pair(const std::string& name, const LoraPair& pair) const {
  const std::string where = adapter_.path().string();
  if (pair.a == nullptr || pair.b == nullptr) {
    return make_error(ErrorCode::invalid_input, where + ": weight " + quote_text(name) + " has lora_" + (pair.a ? "A" : "B") +
                                                    " but no lora_" + (pair.a ? "B" : "A"));
  }
  CHORUS_ASSIGN(const std::vector<uint64_t> base_shape, base_->shape(name));
  if (base_shape.size() != 2)
    return make_error(ErrorCode::unsupported,
                      where + ": an adapter for " + quote_text(name) + " of shape " + shape_text(base_shape) + ", expected a matrix");
  const auto check = [&](const TensorInfo& tensor, std::vector<uint64_t> expected) -> Status {
    if (tensor.shape != expected) {
      return make_error(ErrorCode::invalid_input, where + ": tensor " + quote_text(tensor.name) + ": expected shape " +
                                                      shape_text(expected) + " (rank " + std::to_string(rank_) + ", base " +
                                                      shape_text(base_shape) + "), found " + shape_text(tensor.shape));
    }
    return check_weight_type(tensor, where);
  };
  CHORUS_TRY(check(*pair.a, {rank_, base_shape[1]}));
  return check(*pair.b, {base_shape[0], rank_});
}

Status MergedWeights::check_targets(const AdapterConfig& config) const {
  for (const auto& name : base_->names()) {
    if (!name.ends_with(".weight") || pairs_.contains(name)) continue;
    const std::string_view module = std::string_view(name).substr(0, name.size() - std::string_view(".weight").size());
    for (const auto& target : config.target_modules) {
      if (module == target || module.ends_with("." + target)) {
        return make_error(ErrorCode::invalid_input, adapter_.path().string() + ": target_modules names " + quote_text(target) +
                                                        ", but there is no adapter for " + quote_text(name));
      }
    }
  }
  return {};
}

Status MergedWeights::match(const AdapterConfig& config) {
  for (const auto& tensor : adapter_.tensors()) CHORUS_TRY(add_tensor(tensor));
  if (pairs_.empty()) return make_error(ErrorCode::invalid_input, adapter_.path().string() + ": no LoRA tensors");
  for (const auto& [name, pair] : pairs_) CHORUS_TRY(check_pair(name, pair));
  return check_targets(config);
}

Status MergedWeights::read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const {
  CHORUS_TRY(base_->read_rows(name, first_row, row_count, out));
  const auto found = pairs_.find(name);
  if (found == pairs_.end() || row_count == 0) return {};
  const LoraPair& pair = found->second;
  const uint64_t columns = pair.a->shape[1];
  std::vector<float> a(pair.a->elements);
  CHORUS_TRY(adapter_.read_f32(*pair.a, 0, a));
  std::vector<float> b(row_count * rank_);
  CHORUS_TRY(adapter_.read_f32(*pair.b, first_row * rank_, b));
  for (uint64_t row = 0; row < row_count; ++row) {
    add_low_rank(std::span(b).subspan(row * rank_, rank_), a, scaling_, out.subspan(row * columns, columns));
  }
  return check_finite(out, adapter_.path().string() + ": merged weight " + quote_text(name), first_row * columns);
}

}  // namespace

Result<AdapterConfig> parse_adapter_config(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  auto parsed = parse_json(json);
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading " + where);
  CHORUS_TRY(parsed->as_object(where));
  CHORUS_TRY(check_plain_lora(*parsed, where));

  AdapterConfig config;
  if (const JsonValue* base = find_set(*parsed, "base_model_name_or_path")) {
    CHORUS_ASSIGN(config.base, base->as_string(where + ": base_model_name_or_path"));
  }
  if (const JsonValue* revision = find_set(*parsed, "revision")) {
    CHORUS_ASSIGN(config.revision, revision->as_string(where + ": revision"));
  }
  CHORUS_ASSIGN(const JsonValue* rank_value, parsed->member("r", where));
  CHORUS_ASSIGN(const uint64_t rank, rank_value->as_uint64(where + ": r"));
  if (rank < 1 || rank > kRankMax)
    return make_error(ErrorCode::invalid_input,
                      where + ": r: expected 1 to " + std::to_string(kRankMax) + ", found " + std::to_string(rank));
  config.rank = static_cast<uint32_t>(rank);
  CHORUS_ASSIGN(const JsonValue* alpha_value, parsed->member("lora_alpha", where));
  CHORUS_ASSIGN(const double alpha, alpha_value->as_double(where + ": lora_alpha"));
  bool rank_stabilised = false;
  if (const JsonValue* flag = find_set(*parsed, "use_rslora")) {
    CHORUS_ASSIGN(rank_stabilised, flag->as_bool(where + ": use_rslora"));
  }
  config.scaling = alpha / (rank_stabilised ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  if (!std::isfinite(static_cast<float>(config.scaling)) || config.scaling == 0) {
    return make_error(ErrorCode::invalid_input,
                      where + ": lora_alpha: expected a finite number other than 0, found " + python_float_text(alpha));
  }
  CHORUS_ASSIGN(config.target_modules, read_target_modules(*parsed, where));
  return config;
}

Result<std::unique_ptr<WeightSource>> merge_adapter(std::unique_ptr<WeightSource> base, TensorStore adapter, const AdapterConfig& config) {
  auto merged = std::make_unique<MergedWeights>(std::move(base), std::move(adapter), config);
  CHORUS_TRY(merged->match(config));
  return std::unique_ptr<WeightSource>(std::move(merged));
}

}  // namespace chorus::formats
