// generation_config.json: which tokens end an answer, and how the model's authors sample.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/sampling.h"

namespace chorus::generation {

struct GenerationConfig {
  std::vector<uint32_t> end_tokens;  // may be empty
  SamplingOptions sampling;          // greedy unless "do_sample" is true
};

// An absent member keeps its default. Errors name the member.
Result<GenerationConfig> parse_generation_config(std::string_view json);

}  // namespace chorus::generation
