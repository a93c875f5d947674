// config.json and adapter_config.json: whatever is accepted is in range.
#include "base/limits.h"
#include "formats/adapter.h"
#include "formats/config.h"
#include "fuzz_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace chorus;
  if (auto config = formats::parse_config(fuzz::as_text(data, size))) {
    fuzz::require(config->layers >= 1 && config->layers <= limits::kLayersMax, "layers are in range");
    fuzz::require(config->layer_types.size() == config->layers, "every layer has a kind");
    fuzz::require(config->hidden_size >= 1 && config->hidden_size <= limits::kModelDimensionMax, "the hidden size is in range");
    fuzz::require(config->kv_heads >= 1 && config->query_heads % config->kv_heads == 0, "heads divide");
    fuzz::require(config->rotary_dim <= config->head_dim && config->rotary_dim % 2 == 0, "the rotary part fits a head");
    fuzz::require(config->linear_key_heads >= 1 && config->linear_value_heads % config->linear_key_heads == 0, "DeltaNet heads divide");
  }
  if (auto adapter = formats::parse_adapter_config(fuzz::as_text(data, size), "fuzz")) {
    fuzz::require(adapter->rank >= 1, "the rank is positive");
    fuzz::require(adapter->scaling == adapter->scaling, "the scaling is a number");
  }
  return 0;
}
