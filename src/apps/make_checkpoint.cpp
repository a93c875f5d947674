// `chorus make-checkpoint`: a mixture-of-experts checkpoint of seeded random numbers, for measuring models larger than memory.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "apps/command.h"
#include "apps/help.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "formats/tokenizer.h"
#include "models/random_checkpoint.h"

namespace chorus::apps {
namespace {

struct MakeFlags {
  std::string out, layout = "qwen3_moe", dtype = "bf16", tokenizer;
  models::RandomMoeSizes sizes{24, 1024, 512, 64, 4, 16, 4, 64, 1536, 4096};
  uint64_t seed = 1;
};

// Text files of the model whose tokenizer is taken. Checked before anything is written: a checkpoint of gigabytes that cannot be used is
// found out too late.
Result<std::vector<std::string>> texts_to_copy(const MakeFlags& flags) {
  std::vector<std::string> names;
  if (flags.tokenizer.empty()) return names;
  const std::filesystem::path from = flags.tokenizer;
  std::error_code code;
  if (!std::filesystem::is_directory(from, code)) {
    return make_error(ErrorCode::not_found, "--tokenizer: " + flags.tokenizer + ": expected the folder of a model, found none");
  }
  CHORUS_ASSIGN(const std::string json, read_text_file(from / "tokenizer.json", limits::kTokenizerBytesMax));
  auto tokenizer = formats::Tokenizer::parse(json);
  if (!tokenizer) return std::move(tokenizer).error().with_context("reading " + (from / "tokenizer.json").string());
  if (tokenizer->vocabulary_size() > flags.sizes.vocabulary) {
    return make_error(ErrorCode::invalid_argument, "--vocabulary " + std::to_string(flags.sizes.vocabulary) + ": expected at least the " +
                                                       std::to_string(tokenizer->vocabulary_size()) + " tokens of " + from.string());
  }
  names.push_back("tokenizer.json");
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja"}) {
    if (std::filesystem::exists(from / name, code)) names.push_back(name);
  }
  return names;
}

Status check_disk(const std::filesystem::path& parent, const MakeFlags& flags, uint64_t bytes) {
  std::error_code code;
  const std::filesystem::space_info space = std::filesystem::space(parent, code);
  if (code) return make_error(ErrorCode::io_failed, parent.string() + ": cannot ask for the free space: " + code.message());
  if (bytes <= space.available) return {};
  return make_error(ErrorCode::io_failed, flags.out + ": the weights take " + std::to_string(bytes) + " bytes, the disk has " +
                                              std::to_string(space.available) + " free");
}

// A folder that gets its name when everything is in it; removed when that does not come to pass.
class UnfinishedFolder {
 public:
  static Result<UnfinishedFolder> create(const std::filesystem::path& target) {
    std::error_code code;
    if (target.filename().empty())
      return make_error(ErrorCode::invalid_argument, (target.empty() ? "out" : target.string()) + ": expected the name of a folder");
    // Of the name itself: rename(2) does not put a folder in the place of a link.
    const std::filesystem::file_status status = std::filesystem::symlink_status(target, code);
    const bool taken = std::filesystem::exists(status);
    if (taken && !(std::filesystem::is_directory(status) && std::filesystem::is_empty(target, code))) {
      return make_error(ErrorCode::invalid_argument, target.string() + ": expected a free name or an empty folder, found something there");
    }
    UnfinishedFolder folder;
    folder.target_ = target;
    const std::filesystem::path unfinished = target.string() + ".partial-" + std::to_string(::getpid());
    if (!std::filesystem::create_directories(unfinished, code)) {
      return make_error(ErrorCode::io_failed,
                        unfinished.string() + ": cannot make the folder" + (code ? ": " + code.message() : ", it is there"));
    }
    folder.path_ = unfinished;
    if (taken) CHORUS_TRY(folder.try_rename());
    return folder;
  }
  UnfinishedFolder(UnfinishedFolder&& other) noexcept : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})) {}
  UnfinishedFolder& operator=(UnfinishedFolder&&) = delete;
  ~UnfinishedFolder() {
    std::error_code code;
    if (!path_.empty()) std::filesystem::remove_all(path_, code);
  }

  const std::filesystem::path& path() const { return path_; }
  Status finish() {
    std::error_code code;
    std::filesystem::rename(path_, target_, code);
    if (code) return make_error(ErrorCode::io_failed, target_.string() + ": cannot rename into place: " + code.message());
    path_.clear();
    return {};
  }

 private:
  UnfinishedFolder() = default;

  // There and back, while both folders are empty: what cannot be replaced, as a mount point cannot, is known before anything is written.
  Status try_rename() {
    std::error_code code;
    std::filesystem::rename(path_, target_, code);
    if (code) return make_error(ErrorCode::io_failed, target_.string() + ": cannot be replaced: " + code.message());
    std::filesystem::rename(target_, path_, code);
    if (!code) std::filesystem::create_directory(target_, code);
    if (code) return make_error(ErrorCode::io_failed, target_.string() + ": cannot be replaced: " + code.message());
    return {};
  }

  std::filesystem::path target_, path_;  // no path: nothing to clean up
};

Status make_checkpoint(const MakeFlags& flags) {
  CHORUS_ASSIGN(const std::string config, models::random_moe_config(flags.layout, flags.sizes));
  models::RandomCheckpointOptions options;
  options.seed = flags.seed;
  options.dtype = parse_dtype(flags.dtype).value_or(DType::bf16);
  options.progress = load_progress();
  CHORUS_ASSIGN(const std::vector<std::string> texts, texts_to_copy(flags));
  CHORUS_ASSIGN(const uint64_t bytes, models::random_checkpoint_bytes(config, options.dtype));
  std::error_code code;
  std::filesystem::path target = std::filesystem::weakly_canonical(flags.out, code);  // of a link, what it leads to
  if (code) return make_error(ErrorCode::io_failed, flags.out + ": cannot follow the name: " + code.message());
  if (target.filename().empty()) target = target.parent_path();  // "name/"
  CHORUS_ASSIGN(UnfinishedFolder folder, UnfinishedFolder::create(target));
  CHORUS_TRY(check_disk(folder.path(), flags, bytes));
  CHORUS_TRY(models::write_random_checkpoint(folder.path(), config, options));
  for (const std::string& name : texts) {
    std::filesystem::copy_file(std::filesystem::path(flags.tokenizer) / name, folder.path() / name, code);
    if (code) return make_error(ErrorCode::io_failed, flags.out + "/" + name + ": cannot copy: " + code.message());
  }
  return folder.finish();
}

int run_make_checkpoint(const MakeFlags& flags) {
  const auto made = make_checkpoint(flags);
  if (!made.ok()) return fail(made.error());
  const auto& s = flags.sizes;
  const uint64_t expert_bytes = uint64_t{3} * s.hidden * s.inner * dtype_bytes(parse_dtype(flags.dtype).value_or(DType::bf16));
  print("%s: %u layers of %u experts of %s, %s of experts\n", flags.out.c_str(), s.layers, s.experts, size_text(expert_bytes).c_str(),
        size_text(expert_bytes * s.layers * s.experts).c_str());
  return kExitOk;
}

}  // namespace

Command add_make_checkpoint(CLI::App& app) {
  auto flags = std::make_shared<MakeFlags>();
  CLI::App* command = app.add_subcommand("make-checkpoint", "Write a mixture-of-experts checkpoint of seeded random numbers");
  command->group("Write models");
  auto& s = flags->sizes;
  const auto size = [&](const char* name, uint32_t& value, const char* description, uint32_t low, uint32_t high) {
    command->add_option(name, value, description)->check(CLI::Range(low, high))->capture_default_str()->group("Sizes");
  };
  command->add_option("out", flags->out, "The folder to write")->required();
  size("--layers", s.layers, "Layers", 1, limits::kLayersMax);
  size("--hidden", s.hidden, "Numbers of a token's row", 1, 1u << 16);
  size("--experts", s.experts, "Experts of a layer", 1, 1u << 12);
  size("--top-k", s.top_k, "Experts of a token", 1, 32);
  size("--inner", s.inner, "Inner units of an expert", 1, 1u << 16);
  size("--heads", s.heads, "Query heads", 1, 1024);
  size("--kv-heads", s.kv_heads, "Heads of keys and values", 1, 1024);
  size("--head-dim", s.head_dim, "Numbers of a head", 2, 1024);
  size("--vocabulary", s.vocabulary, "Tokens there are", 2, limits::kVocabularyMax);
  size("--context", s.context, "Tokens of a text, at most", 1, 1u << 24);
  command->add_option("--layout", flags->layout, "Layout of the tensors")
      ->check(CLI::IsMember({"qwen3_moe", "olmoe"}))
      ->capture_default_str()
      ->group(kOutputGroup);
  command->add_option("--dtype", flags->dtype, "Type of the weights")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str()
      ->group(kOutputGroup);
  command->add_option("--tokenizer", flags->tokenizer, "Model folder whose tokenizer and chat template are copied")
      ->option_text("FOLDER")
      ->group(kOutputGroup);
  command->add_option("--seed", flags->seed, "The same seed gives the same numbers")->capture_default_str()->group(kRareGroup);
  add_help_flag(*command);
  return {command, [flags] { return run_make_checkpoint(*flags); }};
}

}  // namespace chorus::apps
