// Questions to token rows (kev.md 3.3, 4.1, 4.4): a state prefix once, then one branch per question.
// Position of token i of a branch = state tokens + i. Row k is the causal sequence state + branch k; no other question is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "decisions/request.h"
#include "formats/tokenizer.h"

namespace chorus::decisions {

struct Delimiters {
  uint32_t state = 0;         // <|fim_prefix|>
  uint32_t question = 0;      // <|fim_middle|>
  uint32_t option_start = 0;  // <|box_start|>
  uint32_t option_end = 0;    // <|box_end|>
  uint32_t decide = 0;        // <|fim_suffix|>
  uint32_t pad = 0;           // <|endoftext|>
};
// By their text in the base tokenizer, never by number.
Result<Delimiters> find_delimiters(const formats::Tokenizer& tokenizer);

struct PackLimits {
  uint32_t state_tokens_max = limits::kStateTokensDefault;  // delimiter included
  uint32_t row_tokens_max = limits::kRowTokensDefault;      // state + one branch
  bool truncate_state = false;                              // cut an over-long state instead of refusing it
};

// The limits of a model that reads `context` tokens. Where the context, not the caller, bounds the row, or where the state could fill it
// all, a state is cut so far that a question still has room: 8,192 tokens, as between the limits of Kev 1.0, and a quarter of a short row.
// The room does not depend on the questions: what one is answered must not depend on the others. Explicit limits that leave room are kept.
PackLimits limits_within(uint32_t state_tokens_max, uint32_t row_tokens_max, uint32_t context, bool truncate_state);

struct PackedState {
  std::vector<uint32_t> tokens;  // delimiter first
  uint64_t full_tokens = 0;      // count before cutting, delimiter included
  bool truncated() const { return full_tokens != tokens.size(); }
};

struct PackedBranch {
  std::vector<uint32_t> tokens;       // question delimiter ... decide delimiter
  std::vector<uint32_t> option_ends;  // index in tokens of each option's end delimiter
  uint32_t decide = 0;                // index in tokens of the decide delimiter: the last
};

struct PackedDecision {
  PackedState state;
  std::vector<PackedBranch> branches;  // one per question, request order
  uint64_t input_tokens = 0;           // state once plus every branch
};

// Over a limit: an Error with ErrorCode::limit_exceeded naming what was counted, the count and the limit.
Result<PackedState> pack_state(std::string_view state_text, const formats::Tokenizer& tokenizer, const Delimiters& delimiters,
                               const PackLimits& limits = {});
Result<PackedBranch> pack_question(const Question& question, uint64_t state_tokens, const formats::Tokenizer& tokenizer,
                                   const Delimiters& delimiters, const PackLimits& limits = {});
Result<PackedDecision> pack(const DecisionRequest& request, const formats::Tokenizer& tokenizer, const PackLimits& limits = {});

}  // namespace chorus::decisions
