// `chorus inspect`: what a checkpoint is, what it would take, and what would run where. Loads no weights.
#include <cstdio>

#include "apps/command.h"
#include "apps/help.h"
#include "apps/inspect_language.h"
#include "engine/decision_engine.h"
#include "formats/checkpoint.h"
#include "formats/model_files.h"

namespace chorus::apps {

namespace {

using formats::JsonValue;

struct InspectFlags {
  DeviceFlags device;
  std::string model, base;
  uint32_t plan_tokens = 2048;
  bool tensors = false, json = false;
};

struct Inspection {
  formats::Checkpoint checkpoint;
  engine::MemoryPlan plan;
  compute::BackendInfo device;
  std::string reason;
  std::vector<std::string> operations;  // "linear: tile64, row"
};

Result<Inspection> inspect(const InspectFlags& flags) {
  formats::OpenOptions open;
  if (!flags.base.empty()) open.base = flags.base;
  Inspection result;
  CHORUS_ASSIGN(result.checkpoint, formats::open_checkpoint(flags.model, open));
  CHORUS_ASSIGN(const runtime::BackendChoice choice, choose_backend(flags.device));
  engine::EngineOptions options;
  options.dtype = dtype_of(flags.device);
  options.plan_tokens = flags.plan_tokens;
  result.plan = engine::plan_memory(result.checkpoint.config, *choice.backend, options);
  result.device = choice.backend->info();
  result.reason = choice.reason;
  for (const std::string_view operation : engine::operations_of(result.checkpoint.config, result.checkpoint.head.has_value())) {
    std::string line = std::string(operation) + ":";
    for (const std::string& variant : choice.backend->variants(operation)) line += " " + variant;
    result.operations.push_back(std::move(line));
  }
  return result;
}

std::string layer_summary(const formats::TextConfig& config) {
  size_t attention = 0;
  for (formats::LayerType type : config.layer_types) attention += type == formats::LayerType::full_attention ? 1 : 0;
  return std::to_string(config.layer_types.size()) + " layers (" + std::to_string(config.layer_types.size() - attention) +
         " gated delta net, " + std::to_string(attention) + " attention)";
}

Result<std::vector<std::string>> tensor_lines(const formats::WeightSource& weights) {
  std::vector<std::string> lines;
  for (const std::string& name : weights.names()) {
    CHORUS_ASSIGN(const std::vector<uint64_t> shape, weights.shape(name));
    CHORUS_ASSIGN(const formats::FileDType type, weights.stored_type(name));
    lines.push_back(name + " " + std::string(formats::file_dtype_name(type)) + " " + formats::shape_text(shape));
  }
  return lines;
}

void print_text(const Inspection& result, const std::vector<std::string>& tensors) {
  const formats::TextConfig& c = result.checkpoint.config;
  const formats::CheckpointMetadata& meta = result.checkpoint.metadata;
  print("%s: %s, form %s\n", result.checkpoint.path.c_str(), c.model_type.c_str(),
        std::string(formats::checkpoint_form_name(meta.form)).c_str());
  print("%s, hidden %u, feed-forward %u, vocabulary %u\n", layer_summary(c).c_str(), c.hidden_size, c.intermediate_size, c.vocab_size);
  print("attention: %u query heads, %u key/value heads of %u, %u rotary dimensions\n", c.query_heads, c.kv_heads, c.head_dim, c.rotary_dim);
  print("gated delta net: %u key heads of %u, %u value heads of %u\n", c.linear_key_heads, c.linear_key_dim, c.linear_value_heads,
        c.linear_value_dim);
  if (result.checkpoint.head) {
    print("pointer head: width %u, temperature %.6g, %s\n", result.checkpoint.head->head_dim, meta.temperature, meta.checkpoint_id.c_str());
  } else {
    print("pointer head: none (cannot answer questions)\n");
  }
  print("base: %s%s%s, LoRA rank %u\n", meta.base.empty() ? "-" : meta.base.c_str(), meta.base_revision ? " at " : "",
        meta.base_revision.value_or("").c_str(), meta.lora_rank);
  if (!result.checkpoint.ignored_tensors.empty()) {
    print("ignored tensors (vision, multi-token prediction): %zu\n", result.checkpoint.ignored_tensors.size());
  }
  print("%s\n", result.plan.to_line().c_str());
  print("would run on: %s, %s\nreason: %s\n", result.device.kind.c_str(), result.device.device.c_str(), result.reason.c_str());
  print("kernels (each with the variants this device has; sizes decide):\n");
  for (const std::string& line : result.operations) print("    %s\n", line.c_str());
  for (const std::string& line : tensors) print("%s\n", line.c_str());
}

void print_json(const Inspection& result, const std::vector<std::string>& tensors) {
  const formats::TextConfig& c = result.checkpoint.config;
  const formats::CheckpointMetadata& meta = result.checkpoint.metadata;
  JsonValue body = JsonValue::object(), plan = JsonValue::object(), operations = JsonValue::array(), list = JsonValue::array();
  auto integer = [](uint64_t value) { return JsonValue::integer(static_cast<int64_t>(value)); };
  body.set("model_type", JsonValue::string(c.model_type));
  body.set("form", JsonValue::string(std::string(formats::checkpoint_form_name(meta.form))));
  body.set("layers", integer(c.layers));
  body.set("hidden_size", integer(c.hidden_size));
  body.set("intermediate_size", integer(c.intermediate_size));
  body.set("vocab_size", integer(c.vocab_size));
  body.set("head_dim", result.checkpoint.head ? integer(result.checkpoint.head->head_dim) : JsonValue());
  body.set("temperature", JsonValue::floating(meta.temperature));
  body.set("checkpoint_id", JsonValue::string(meta.checkpoint_id));
  body.set("base", JsonValue::string(meta.base));
  body.set("base_revision", meta.base_revision ? JsonValue::string(*meta.base_revision) : JsonValue());
  plan.set("weights", integer(result.plan.weights));
  plan.set("workspace", integer(result.plan.workspace));
  plan.set("snapshot", integer(result.plan.snapshot));
  plan.set("snapshot_tokens", integer(result.plan.snapshot_tokens));
  body.set("memory_plan", std::move(plan));
  body.set("backend", JsonValue::string(result.device.kind));
  body.set("device", JsonValue::string(result.device.device));
  body.set("reason", JsonValue::string(result.reason));
  for (const std::string& line : result.operations) operations.push_back(JsonValue::string(line));
  body.set("operations", std::move(operations));
  for (const std::string& line : tensors) list.push_back(JsonValue::string(line));
  if (!tensors.empty()) body.set("tensors", std::move(list));
  print("%s\n", formats::json_dumps(body).c_str());
}

int run_inspect(const InspectFlags& flags) {
  if (formats::is_model_pack(flags.model)) return inspect_language(flags.model, flags.tensors, flags.json);
  auto result = inspect(flags);
  const bool other_architecture = !result && result.error().code == ErrorCode::unsupported;
  if (other_architecture && models::is_language_folder(flags.model)) return inspect_language(flags.model, flags.tensors, flags.json);
  if (!result) return fail(result.error());
  std::vector<std::string> tensors;
  if (flags.tensors) {
    auto lines = tensor_lines(*result->checkpoint.weights);
    if (!lines) return fail(lines.error());
    tensors = std::move(lines).value();
  }
  if (flags.json) {
    print_json(*result, tensors);
  } else {
    print_text(*result, tensors);
  }
  return kExitOk;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Show a checkpoint's architecture, memory plan and where it would run");
  command->group("Look into models");
  command->add_option("model", flags->model, "Checkpoint folder or packed file")->required();
  add_base_option(*command, flags->base);
  add_device_flags(*command, flags->device);
  command->add_flag("--tensors", flags->tensors, "List every tensor")->group(kOutputGroup);
  add_json_flag(*command, flags->json);
  command->add_option("--plan-tokens", flags->plan_tokens, "State length that the memory plan counts with")
      ->check(CLI::Range(1u, UINT32_MAX))
      ->capture_default_str()
      ->group(kRareGroup);
  add_rare_flags(*command, flags->device);
  return {command, [flags] { return run_inspect(*flags); }};
}

}  // namespace chorus::apps
