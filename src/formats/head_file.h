// The pointer head of a Kev checkpoint: head.pt (a PyTorch zip archive with a pickle inside) or head.safetensors.
// The pickle is read by a small machine of ours that knows only what such a file needs: it builds data, calls nothing, and
// refuses every other opcode and name. Shapes are checked against head_dim and each other before a weight is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace chorus::formats {

// z_j = (k(h_option) . q(h_decide)) / sqrt(head_dim) / temperature, with q(x) = q_weight x + q_bias.
struct PointerHead {
  uint32_t head_dim = 0;
  uint32_t hidden_size = 0;
  std::vector<float> q_weight;  // [head_dim, hidden_size]
  std::vector<float> q_bias;    // [head_dim]
  std::vector<float> k_weight;  // [head_dim, hidden_size]
  std::vector<float> k_bias;    // [head_dim]
};

// What the head file says besides the weights. Keys that are not listed here are provenance and ignored.
struct HeadMetadata {
  std::string base;  // may be empty
  std::optional<std::string> base_revision;
  uint32_t lora_rank = 0;
  double temperature = 1.0;
  std::optional<std::string> weights;  // "lora" or "full"; older files do not say
  std::string weights_dtype = "fp32";
  std::vector<std::string> holdout;
};

struct HeadFile {
  PointerHead head;
  HeadMetadata metadata;
  std::string checkpoint_id;  // "sha256:" and the hash of the file
};

// By the name's end: .safetensors, else the PyTorch form.
Result<HeadFile> read_head_file(const std::filesystem::path& path);
// Pure: this is what the fuzzer calls. `where` names the file in errors; checkpoint_id stays empty.
Result<HeadFile> parse_head_pt(std::span<const std::byte> archive, std::string_view where);

// Checks sizes and that every weight is finite.
Status check_head(const PointerHead& head, std::string_view where);

}  // namespace chorus::formats
