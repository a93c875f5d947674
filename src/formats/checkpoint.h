// A checkpoint on disk, in any of the forms this program runs, behind one interface: configuration, weights by canonical
// name, pointer head, metadata, tokenizer.
//
//   form        files                                                          weights
//   base        config.json, model*.safetensors, tokenizer.json                as they are; no head
//   lora        adapter_config.json, adapter_model.safetensors, head.*         base + adapter, merged while reading
//   full        config.json, model*.safetensors (bare names), head.*           as they are
//   packed      one file made by write_pack                                    as they are
//
// head.* is head.pt or head.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/config.h"
#include "formats/head_file.h"
#include "formats/safetensors.h"

namespace chorus::formats {

// Weights by canonical bare name: "embed_tokens.weight", "layers.3.self_attn.q_proj.weight", "norm.weight",
// "lm_head.weight". Immutable; safe to use from several threads.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual bool has(std::string_view name) const = 0;
  virtual Result<std::vector<uint64_t>> shape(std::string_view name) const = 0;
  // The type in the file (of the base tensor, when an adapter is merged into it).
  virtual Result<FileDType> stored_type(std::string_view name) const = 0;
  // Rows [first_row, first_row + row_count) in f32, merged, row-major. A vector is one row; conv1d.weight [C, 1, 4] is C
  // rows of 4. out.size() must be row_count times the row width. NaN or infinity is an error.
  virtual Status read_rows(std::string_view name, uint64_t first_row, uint64_t row_count, std::span<float> out) const = 0;
  virtual std::vector<std::string> names() const = 0;  // sorted
};

// Rows and columns as read_rows sees a shape.
struct MatrixShape {
  uint64_t rows = 0;
  uint64_t cols = 0;
};
MatrixShape matrix_shape(std::span<const uint64_t> shape);

enum class CheckpointForm : uint8_t { base, lora, full, packed };
std::string_view checkpoint_form_name(CheckpointForm form);

struct CheckpointMetadata {
  CheckpointForm form = CheckpointForm::base;
  std::string weights;  // "base", "lora" or "full": what the weights were before packing
  std::string base;     // id of the base model; empty when unknown
  std::optional<std::string> base_revision;
  double temperature = 1.0;
  uint32_t lora_rank = 0;
  std::string weights_dtype;  // of the head file ("fp32", "bf16"); of a pack: "f32", "f16" or "bf16"
  std::string checkpoint_id;  // "sha256:<hash of the head file>"; empty without a head
  std::vector<std::string> holdout;
};

struct Checkpoint {
  TextConfig config;
  std::string config_json;  // the text `config` was read from
  std::unique_ptr<WeightSource> weights;
  std::optional<PointerHead> head;
  CheckpointMetadata metadata;
  std::filesystem::path path;                // what was opened
  std::filesystem::path base_path;           // folder or file the base weights come from; equals path unless form is lora
  std::filesystem::path tokenizer_path;      // of the base; empty when the checkpoint is packed or has none
  std::vector<std::string> ignored_tensors;  // vision and multi-token-prediction parts
  std::optional<std::string> packed_tokenizer_json;

  // The bytes of tokenizer.json.
  Result<std::string> tokenizer_json() const;
};

struct OpenOptions {
  std::optional<std::filesystem::path> base;  // where the base of a lora checkpoint lies
};

// Opens and checks: the form, that head and weights agree, and that every weight the configuration calls for is there with
// the right shape. Reads no weights except the head.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path, const OpenOptions& options = {});

}  // namespace chorus::formats
