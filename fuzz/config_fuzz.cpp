// config.json of decision and of language models, adapter_config.json, generation_config.json and the experts' entry of a packed model:
// whatever is accepted is in range.
#include "base/limits.h"
#include "experts/packed_store.h"
#include "formats/adapter.h"
#include "formats/config.h"
#include "fuzz_tools.h"
#include "generation/generation_config.h"
#include "models/blueprint_tensors.h"
#include "models/families/read_blueprint.h"

namespace {

using namespace chorus;

void check_decision_model(std::string_view text) {
  const auto config = formats::parse_config(text);
  if (!config) return;
  fuzz::require(config->layers >= 1 && config->layers <= limits::kLayersMax, "layers are in range");
  fuzz::require(config->layer_types.size() == config->layers, "every layer has a kind");
  fuzz::require(config->hidden_size >= 1 && config->hidden_size <= limits::kModelDimensionMax, "the hidden size is in range");
  fuzz::require(config->kv_heads >= 1 && config->query_heads % config->kv_heads == 0, "heads divide");
  fuzz::require(config->rotary_dim <= config->head_dim && config->rotary_dim % 2 == 0, "the rotary part fits a head");
  fuzz::require(config->linear_key_heads >= 1 && config->linear_value_heads % config->linear_key_heads == 0, "DeltaNet heads divide");
}

void check_language_model(std::string_view text) {
  const auto blueprint = models::read_blueprint(text);
  if (!blueprint) {
    fuzz::require(blueprint.error().message.find('\n') == std::string::npos, "an error is one line");
    return;
  }
  fuzz::require(!blueprint->layers.empty() && blueprint->layers.size() <= limits::kLayersMax, "layers are in range");
  fuzz::require(blueprint->hidden >= 1 && blueprint->hidden <= limits::kModelDimensionMax, "the hidden size is in range");
  fuzz::require(blueprint->vocabulary >= 1 && blueprint->vocabulary <= limits::kVocabularyMax, "the vocabulary is in range");
  fuzz::require(blueprint->context >= 1 && blueprint->epsilon > 0, "context and epsilon are positive");
  for (const models::LayerSpec& layer : blueprint->layers) {
    const auto* moe = std::get_if<models::MoeSpec>(&layer.feed_forward);
    if (moe == nullptr) continue;
    fuzz::require(moe->top_k >= 1 && moe->top_k <= moe->experts && moe->inner >= 1, "a token's experts exist");
    fuzz::require(moe->top_k <= compute::kExpertsPerTokenMax, "a token's experts fit the router");
  }
  for (const models::NamedShape& tensor : models::resident_tensors(*blueprint)) {
    fuzz::require(!tensor.name.empty() && !tensor.shape.empty(), "tensors have names and shapes");
    for (const uint64_t extent : tensor.shape) fuzz::require(extent >= 1 && extent <= UINT32_MAX, "tensors have sizes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  check_decision_model(text);
  check_language_model(text);
  if (const auto adapter = formats::parse_adapter_config(text, "fuzz")) {
    fuzz::require(adapter->rank >= 1, "the rank is positive");
    fuzz::require(adapter->scaling == adapter->scaling, "the scaling is a number");
  }
  if (const auto config = generation::parse_generation_config(text)) {
    fuzz::require(generation::check_sampling(config->sampling, UINT32_MAX).ok(), "accepted sampling passes its own check");
  }
  if (const auto shape = experts::parse_packed_experts(text, "fuzz")) {
    fuzz::require(shape->hidden >= 1 && shape->inner >= 1, "experts have sizes");
    fuzz::require(compute::ExpertRecord(*shape).bytes % 64 == 0, "a record's size is whole");
    const auto again = experts::parse_packed_experts(experts::packed_experts_json(*shape), "again");
    fuzz::require(again.ok() && *again == *shape, "what is written is read again");
  }
  return 0;
}
