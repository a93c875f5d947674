// `chorus inspect` of a language model's folder: its parts, what they weigh, and which tensors are not part of it.
#include "apps/inspect_language.h"

#include <cstdio>

#include "apps/command.h"
#include "experts/expert_system.h"
#include "models/blueprint_tensors.h"

namespace chorus::apps {

namespace {

using formats::JsonValue;
using models::Blueprint;

struct Counts {
  uint64_t attention = 0, latent = 0, delta = 0, expert_layers = 0, experts = 0;
  uint64_t resident_numbers = 0, expert_numbers = 0;
};

Counts count_parts(const Blueprint& blueprint) {
  Counts counts;
  for (const models::NamedShape& tensor : models::resident_tensors(blueprint)) {
    uint64_t numbers = 1;
    for (const uint64_t extent : tensor.shape) numbers *= extent;
    counts.resident_numbers += numbers;
  }
  for (const models::LayerSpec& layer : blueprint.layers) {
    counts.attention += std::holds_alternative<models::AttentionSpec>(layer.mixer) ? 1 : 0;
    counts.latent += std::holds_alternative<models::LatentAttentionSpec>(layer.mixer) ? 1 : 0;
    counts.delta += std::holds_alternative<models::DeltaSpec>(layer.mixer) ? 1 : 0;
    const auto* moe = std::get_if<models::MoeSpec>(&layer.feed_forward);
    if (!moe) continue;
    ++counts.expert_layers;
    counts.experts += moe->experts;
    counts.expert_numbers += uint64_t{moe->experts} * 3 * moe->inner * blueprint.hidden;
  }
  return counts;
}

std::vector<std::string> tensor_lines(const formats::TensorStore& store) {
  std::vector<std::string> lines;
  for (const std::string& name : store.names()) {
    const formats::TensorInfo& tensor = *store.find(name);
    lines.push_back(name + " " + std::string(formats::file_dtype_name(tensor.dtype)) + " " + formats::shape_text(tensor.shape));
  }
  return lines;
}

void print_text(const models::LanguageCheckpoint& checkpoint, const Counts& counts, const std::vector<std::string>& tensors) {
  const Blueprint& b = checkpoint.blueprint;
  print("%s: %s, a language model\n", checkpoint.path.c_str(), b.model_type.c_str());
  print("%zu layers (%llu attention, %llu latent attention, %llu gated delta net), hidden %u, vocabulary %u, context %u\n", b.layers.size(),
        static_cast<unsigned long long>(counts.attention), static_cast<unsigned long long>(counts.latent),
        static_cast<unsigned long long>(counts.delta), b.hidden, b.vocabulary, b.context);
  print("experts: %llu in %llu layers, %.3f million numbers; the rest: %.3f million\n", static_cast<unsigned long long>(counts.experts),
        static_cast<unsigned long long>(counts.expert_layers), static_cast<double>(counts.expert_numbers) / 1e6,
        static_cast<double>(counts.resident_numbers) / 1e6);
  if (!checkpoint.ignored_tensors.empty())
    print("ignored tensors (vision, multi-token prediction, copies): %zu\n", checkpoint.ignored_tensors.size());
  for (const std::string& name : checkpoint.ignored_tensors) print("    %s\n", name.c_str());
  for (const std::string& line : tensors) print("%s\n", line.c_str());
}

void print_json(const models::LanguageCheckpoint& checkpoint, const Counts& counts, const std::vector<std::string>& tensors) {
  const Blueprint& b = checkpoint.blueprint;
  const auto integer = [](uint64_t value) { return JsonValue::integer(static_cast<int64_t>(value)); };
  JsonValue body = JsonValue::object(), ignored = JsonValue::array(), list = JsonValue::array();
  body.set("model_type", JsonValue::string(b.model_type));
  body.set("form", JsonValue::string("language"));
  body.set("layers", integer(b.layers.size()));
  body.set("hidden_size", integer(b.hidden));
  body.set("vocab_size", integer(b.vocabulary));
  body.set("context", integer(b.context));
  body.set("experts", integer(counts.experts));
  body.set("expert_numbers", integer(counts.expert_numbers));
  body.set("resident_numbers", integer(counts.resident_numbers));
  for (const std::string& name : checkpoint.ignored_tensors) ignored.push_back(JsonValue::string(name));
  body.set("ignored_tensors", std::move(ignored));
  for (const std::string& line : tensors) list.push_back(JsonValue::string(line));
  if (!tensors.empty()) body.set("tensors", std::move(list));
  print("%s\n", formats::json_dumps(body).c_str());
}

}  // namespace

int inspect_language(const std::filesystem::path& folder, bool tensors, bool json) {
  auto checkpoint = models::open_language_checkpoint(folder);
  if (!checkpoint) return fail(checkpoint.error());
  const Counts counts = count_parts(checkpoint->blueprint);
  if (counts.experts > 0) {
    const auto store = experts::open_expert_store(*checkpoint, DType::f32, false);  // checks the experts' tensors
    if (!store) return fail(store.error());
  }
  const std::vector<std::string> lines = tensors ? tensor_lines(*checkpoint->store) : std::vector<std::string>();
  if (json) {
    print_json(*checkpoint, counts, lines);
  } else {
    print_text(*checkpoint, counts, lines);
  }
  return kExitOk;
}

}  // namespace chorus::apps
