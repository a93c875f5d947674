// `chorus pack`: one file with merged weights, head, tokenizer and metadata.
#include "formats/pack.h"

#include <cstdio>

#include "apps/command.h"
#include "formats/checkpoint.h"

namespace chorus::apps {

namespace {

struct PackFlags {
  std::string model, base, out, dtype = "f32";
  bool json = false;
};

Result<uint64_t> write_packed(const PackFlags& flags) {
  formats::OpenOptions open;
  if (!flags.base.empty()) open.base = flags.base;
  CHORUS_ASSIGN(const formats::Checkpoint checkpoint, formats::open_checkpoint(flags.model, open));
  std::string tokenizer;
  if (checkpoint.packed_tokenizer_json || !checkpoint.tokenizer_path.empty()) {
    CHORUS_ASSIGN(tokenizer, checkpoint.tokenizer_json());
  }
  CHORUS_TRY(formats::write_pack(checkpoint, tokenizer, parse_dtype(flags.dtype).value_or(DType::f32), flags.out));
  std::error_code code;
  const uint64_t bytes = std::filesystem::file_size(flags.out, code);
  if (code) return make_error(ErrorCode::io_failed, "cannot read the size of " + flags.out + ": " + code.message());
  return bytes;
}

int run_pack(const PackFlags& flags) {
  auto bytes = write_packed(flags);
  if (!bytes) return fail(bytes.error());
  if (!flags.json) {
    std::printf("%s: %.1f MiB, %s weights\n", flags.out.c_str(), static_cast<double>(*bytes) / (1 << 20), flags.dtype.c_str());
    return kExitOk;
  }
  formats::JsonValue body = formats::JsonValue::object();
  body.set("file", formats::JsonValue::string(flags.out));
  body.set("bytes", formats::JsonValue::integer(static_cast<int64_t>(*bytes)));
  body.set("dtype", formats::JsonValue::string(flags.dtype));
  std::printf("%s\n", formats::json_dumps(body).c_str());
  return kExitOk;
}

}  // namespace

Command add_pack(CLI::App& app) {
  auto flags = std::make_shared<PackFlags>();
  CLI::App* command = app.add_subcommand("pack", "Write a checkpoint as one file that loads in one pass");
  command->add_option("model", flags->model, "Checkpoint folder")->required();
  command->add_option("--base", flags->base, "Base model folder of an adapter checkpoint");
  command->add_option("--out", flags->out, "The file to write")->required();
  command->add_option("--dtype", flags->dtype, "Type of the weights in the file")->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command->add_flag("--json", flags->json, "Print JSON");
  return {command, [flags] { return run_pack(*flags); }};
}

}  // namespace chorus::apps
