// `chorus tokenize`: token ids of a text, as the model sees them.
#include <cstdio>

#include "apps/command.h"
#include "apps/help.h"
#include "base/limits.h"
#include "formats/checkpoint.h"
#include "formats/model_files.h"
#include "formats/tokenizer.h"

namespace chorus::apps {

namespace {

struct TokenizeFlags {
  std::string model, base, text;
  bool json = false;
};

// tokenizer.json itself, or the tokenizer of a checkpoint or base folder.
Result<formats::Tokenizer> load_tokenizer(const TokenizeFlags& flags) {
  CHORUS_TRY(formats::check_model_path(flags.model));
  std::filesystem::path path = flags.model;
  if (flags.base.empty() && std::filesystem::is_regular_file(path / "tokenizer.json")) path /= "tokenizer.json";
  if (path.extension() == ".json") {
    CHORUS_ASSIGN(const std::string text, read_text(path.string(), limits::kTokenizerBytesMax));
    return formats::Tokenizer::parse(text);
  }
  formats::OpenOptions open;
  if (!flags.base.empty()) open.base = flags.base;
  CHORUS_ASSIGN(const formats::Checkpoint checkpoint, formats::open_checkpoint(flags.model, open));
  CHORUS_ASSIGN(const std::string text, checkpoint.tokenizer_json());
  return formats::Tokenizer::parse(text);
}

Result<std::string> input_text(const std::string& argument) {
  if (argument == "-") return read_text("-", limits::kTextBytesMax);
  if (!argument.empty() && argument.front() == '@') return read_text(argument.substr(1), limits::kTextBytesMax);
  return argument;
}

void print_json(const std::vector<uint32_t>& ids) {
  formats::JsonValue list = formats::JsonValue::array();
  for (uint32_t id : ids) list.push_back(formats::JsonValue::integer(id));
  formats::JsonValue body = formats::JsonValue::object();
  body.set("count", formats::JsonValue::integer(static_cast<int64_t>(ids.size())));
  body.set("ids", std::move(list));
  print("%s\n", formats::json_dumps(body).c_str());
}

int run_tokenize(const TokenizeFlags& flags) {
  auto tokenizer = load_tokenizer(flags);
  if (!tokenizer) return fail(tokenizer.error());
  auto text = input_text(flags.text);
  if (!text) return fail(text.error());
  auto ids = tokenizer->encode(*text);
  if (!ids) return fail(ids.error());
  if (flags.json) {
    print_json(*ids);
    return kExitOk;
  }
  for (uint32_t id : *ids) {
    auto piece = tokenizer->decode(std::span<const uint32_t>(&id, 1));
    if (!piece) return fail(piece.error());
    print("%8u  %s\n", id, formats::json_dumps(formats::JsonValue::string(*piece), {", ", ": ", false}).c_str());
  }
  print("%zu tokens\n", ids->size());
  return kExitOk;
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the token ids of a text")->group("Look into models");
  command->add_option("--model", flags->model, "Checkpoint folder, packed file or tokenizer.json")
      ->option_text("PATH")
      ->required()
      ->group(kModelGroup);
  add_base_option(*command, flags->base);
  command->add_option("text", flags->text, "The text, or @FILE; -: standard input")->required();
  add_json_flag(*command, flags->json);
  add_help_flag(*command);
  return {command, [flags] { return run_tokenize(*flags); }};
}

}  // namespace chorus::apps
