// `chorus make-checkpoint`: a mixture-of-experts checkpoint of seeded random numbers, for measuring models larger than memory.
#include <cstdio>
#include <filesystem>

#include "apps/command.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "models/random_checkpoint.h"

namespace chorus::apps {
namespace {

struct MakeFlags {
  std::string out, layout = "qwen3_moe", dtype = "bf16", tokenizer;
  models::RandomMoeSizes sizes{24, 1024, 512, 64, 4, 16, 4, 64, 1536, 4096};
  uint64_t seed = 1;
};

// Tokenizer and chat template of another model, so that text can be generated.
Status copy_texts(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    std::error_code code;
    if (!std::filesystem::exists(from / name, code)) continue;
    std::filesystem::copy_file(from / name, to / name, std::filesystem::copy_options::overwrite_existing, code);
    if (code) return make_error(ErrorCode::io_failed, (to / name).string() + ": cannot copy: " + code.message());
  }
  return {};
}

Status make_checkpoint(const MakeFlags& flags) {
  CHORUS_ASSIGN(const std::string config, models::random_moe_config(flags.layout, flags.sizes));
  models::RandomCheckpointOptions options;
  options.seed = flags.seed;
  options.dtype = parse_dtype(flags.dtype).value_or(DType::bf16);
  options.progress = load_progress();
  CHORUS_TRY(models::write_random_checkpoint(flags.out, config, options));
  if (flags.tokenizer.empty()) return {};
  return copy_texts(flags.tokenizer, flags.out);
}

int run_make_checkpoint(const MakeFlags& flags) {
  const auto made = make_checkpoint(flags);
  if (!made.ok()) return fail(made.error());
  const auto& s = flags.sizes;
  const double expert_bytes = 3.0 * s.hidden * s.inner * dtype_bytes(parse_dtype(flags.dtype).value_or(DType::bf16));
  std::printf("%s: %u layers of %u experts of %.2f MB, %.2f GB of experts\n", flags.out.c_str(), s.layers, s.experts, expert_bytes / 1e6,
              expert_bytes * s.layers * s.experts / 1e9);
  return kExitOk;
}

}  // namespace

Command add_make_checkpoint(CLI::App& app) {
  auto flags = std::make_shared<MakeFlags>();
  CLI::App* command = app.add_subcommand("make-checkpoint", "Write a mixture-of-experts checkpoint of seeded random numbers");
  auto& s = flags->sizes;
  command->add_option("out", flags->out, "The folder to write")->required();
  command->add_option("--layout", flags->layout, "Layout of the tensors")->check(CLI::IsMember({"qwen3_moe", "olmoe"}));
  command->add_option("--layers", s.layers)->check(CLI::Range(1u, limits::kLayersMax));
  command->add_option("--hidden", s.hidden)->check(CLI::Range(1u, 1u << 16));
  command->add_option("--inner", s.inner, "Inner units of an expert")->check(CLI::Range(1u, 1u << 16));
  command->add_option("--experts", s.experts, "Experts of a layer")->check(CLI::Range(1u, 1u << 12));
  command->add_option("--top-k", s.top_k, "Experts of a token")->check(CLI::Range(1u, 32u));
  command->add_option("--heads", s.heads)->check(CLI::Range(1u, 1024u));
  command->add_option("--kv-heads", s.kv_heads)->check(CLI::Range(1u, 1024u));
  command->add_option("--head-dim", s.head_dim)->check(CLI::Range(2u, 1024u));
  command->add_option("--vocabulary", s.vocabulary)->check(CLI::Range(2u, limits::kVocabularyMax));
  command->add_option("--context", s.context)->check(CLI::Range(1u, 1u << 24));
  command->add_option("--seed", flags->seed);
  command->add_option("--dtype", flags->dtype)->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command->add_option("--tokenizer", flags->tokenizer, "Model folder whose tokenizer and chat template are copied");
  return {command, [flags] { return run_make_checkpoint(*flags); }};
}

}  // namespace chorus::apps
