// `chorus pack`: one file with everything that a model needs: a decision model merged with its head, or a language model with its experts.
#include "formats/pack.h"

#include <algorithm>
#include <cstdio>

#include "apps/command.h"
#include "apps/help.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "experts/expert_pack.h"
#include "experts/expert_system.h"
#include "formats/checkpoint.h"
#include "models/blueprint_tensors.h"
#include "models/language_checkpoint.h"

namespace chorus::apps {

namespace {

struct PackFlags {
  std::string model, base, out, dtype;
  bool json = false;
};

// Whether a model is packed as a language model: what decisions can run stays a decision model.
bool is_language_model(const std::string& model) {
  std::error_code code;
  if (!std::filesystem::is_directory(model, code)) return formats::is_model_pack(model);
  if (!models::is_language_folder(model)) return false;
  const auto config = read_text_file(std::filesystem::path(model) / "config.json", limits::kJsonBytesMax);
  return config.ok() && !formats::parse_config(*config).ok();
}

// The type that experts have in the files, where records can have it.
DType stored_expert_type(const models::LanguageCheckpoint& checkpoint) {
  for (const auto& layer : checkpoint.blueprint.layers) {
    const auto* moe = std::get_if<models::MoeSpec>(&layer.feed_forward);
    if (moe == nullptr) continue;
    const formats::TensorInfo* tensor = checkpoint.store->find(models::expert_tensors(*moe).front());
    if (tensor == nullptr) break;
    return tensor->dtype == formats::FileDType::F32 ? DType::f32 : tensor->dtype == formats::FileDType::F16 ? DType::f16 : DType::bf16;
  }
  return DType::bf16;
}

bool has_experts(const models::Blueprint& blueprint) {
  return std::any_of(blueprint.layers.begin(), blueprint.layers.end(),
                     [](const auto& layer) { return std::holds_alternative<models::MoeSpec>(layer.feed_forward); });
}

Status write_language_model(PackFlags& flags) {
  CHORUS_ASSIGN(const models::LanguageCheckpoint checkpoint, models::open_language_checkpoint(flags.model));
  const DType dtype = parse_dtype(flags.dtype).value_or(stored_expert_type(checkpoint));
  flags.dtype = dtype_name(dtype);
  std::unique_ptr<experts::ExpertStore> store;
  if (has_experts(checkpoint.blueprint)) {
    CHORUS_ASSIGN(store, experts::open_expert_store(checkpoint, dtype, true));
  }
  return experts::write_model_pack(checkpoint, store.get(), flags.out, load_progress());
}

Status write_decision_model(PackFlags& flags) {
  flags.dtype = flags.dtype.empty() ? "f32" : flags.dtype;
  formats::OpenOptions open;
  if (!flags.base.empty()) open.base = flags.base;
  CHORUS_ASSIGN(const formats::Checkpoint checkpoint, formats::open_checkpoint(flags.model, open));
  std::string tokenizer;
  if (checkpoint.packed_tokenizer_json || !checkpoint.tokenizer_path.empty()) {
    CHORUS_ASSIGN(tokenizer, checkpoint.tokenizer_json());
  }
  return formats::write_pack(checkpoint, tokenizer, parse_dtype(flags.dtype).value_or(DType::f32), flags.out);
}

Result<uint64_t> write_packed(PackFlags& flags) {
  CHORUS_TRY(is_language_model(flags.model) ? write_language_model(flags) : write_decision_model(flags));
  std::error_code code;
  const uint64_t bytes = std::filesystem::file_size(flags.out, code);
  if (code) return make_error(ErrorCode::io_failed, flags.out + ": cannot read the size: " + code.message());
  return bytes;
}

int run_pack(PackFlags& flags) {
  auto bytes = write_packed(flags);
  if (!bytes) return fail(bytes.error());
  if (!flags.json) {
    print("%s: %s, %s weights\n", flags.out.c_str(), size_text(*bytes).c_str(), flags.dtype.c_str());
    return kExitOk;
  }
  formats::JsonValue body = formats::JsonValue::object();
  body.set("file", formats::JsonValue::string(flags.out));
  body.set("bytes", formats::JsonValue::integer(static_cast<int64_t>(*bytes)));
  body.set("dtype", formats::JsonValue::string(flags.dtype));
  print("%s\n", formats::json_dumps(body).c_str());
  return kExitOk;
}

}  // namespace

Command add_pack(CLI::App& app) {
  auto flags = std::make_shared<PackFlags>();
  CLI::App* command = app.add_subcommand("pack", "Write a checkpoint as one file that loads in one pass");
  command->group("Write models");
  command->add_option("model", flags->model, "Checkpoint folder")->required();
  add_base_option(*command, flags->base);
  command->add_option("--out", flags->out, "The file to write")->option_text("FILE")->required()->group(kOutputGroup);
  command
      ->add_option("--dtype", flags->dtype,
                   "Type of the weights in the file, for a language model that of its experts (default: f32, or the experts' own)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->group(kOutputGroup);
  add_json_flag(*command, flags->json);
  add_help_flag(*command);
  return {command, [flags] { return run_pack(*flags); }};
}

}  // namespace chorus::apps
