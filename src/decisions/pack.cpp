#include "decisions/pack.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "decisions/render.h"

namespace chorus::decisions {
namespace {

constexpr uint32_t kQuestionRoom = limits::kRowTokensDefault - limits::kStateTokensDefault;

// 65536 as "65,536".
std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, ",");
  return digits;
}

Status append_text(std::string_view text, const formats::Tokenizer& tokenizer, std::vector<uint32_t>& tokens) {
  CHORUS_ASSIGN(const std::vector<uint32_t> ids, tokenizer.encode(escape_markers(text)));
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  return {};
}

Result<uint32_t> delimiter(const formats::Tokenizer& tokenizer, std::string_view text) {
  if (const auto id = tokenizer.token_id(text)) return *id;
  return make_error(ErrorCode::invalid_input,
                    "tokenizer.json: the delimiter token " + std::string(text) + " is missing; decisions need it");
}

}  // namespace

Result<Delimiters> find_delimiters(const formats::Tokenizer& tokenizer) {
  Delimiters found;
  CHORUS_ASSIGN(found.state, delimiter(tokenizer, "<|fim_prefix|>"));
  CHORUS_ASSIGN(found.question, delimiter(tokenizer, "<|fim_middle|>"));
  CHORUS_ASSIGN(found.option_start, delimiter(tokenizer, "<|box_start|>"));
  CHORUS_ASSIGN(found.option_end, delimiter(tokenizer, "<|box_end|>"));
  CHORUS_ASSIGN(found.decide, delimiter(tokenizer, "<|fim_suffix|>"));
  CHORUS_ASSIGN(found.pad, delimiter(tokenizer, "<|endoftext|>"));
  return found;
}

PackLimits limits_within(uint32_t state_tokens_max, uint32_t row_tokens_max, uint32_t context, bool truncate_state) {
  PackLimits made{std::min(state_tokens_max, context), std::min(row_tokens_max, context), truncate_state};
  const bool needs_room = made.row_tokens_max < row_tokens_max || made.state_tokens_max >= made.row_tokens_max;
  if (!truncate_state || !needs_room) return made;
  const uint32_t room = std::min(kQuestionRoom, made.row_tokens_max / 4);
  made.state_tokens_max = std::max(1u, std::min(made.state_tokens_max, made.row_tokens_max - room));
  return made;
}

Result<PackedState> pack_state(std::string_view state_text, const formats::Tokenizer& tokenizer, const Delimiters& delimiters,
                               const PackLimits& limits) {
  if (limits.state_tokens_max == 0) return make_error(ErrorCode::invalid_argument, "the limit of state tokens must be at least 1");
  PackedState state;
  state.tokens.push_back(delimiters.state);
  CHORUS_TRY(append_text(state_text, tokenizer, state.tokens));
  state.full_tokens = state.tokens.size();
  if (state.full_tokens <= limits.state_tokens_max) return state;
  if (!limits.truncate_state) {
    return make_error(ErrorCode::limit_exceeded, "state: " + grouped(state.full_tokens) +
                                                     " tokens with its delimiter are over the limit of " +
                                                     grouped(limits.state_tokens_max) + "; shorten it, or allow it to be truncated");
  }
  state.tokens.resize(limits.state_tokens_max);
  state.tokens.shrink_to_fit();
  return state;
}

Result<PackedBranch> pack_question(const Question& question, uint64_t state_tokens, const formats::Tokenizer& tokenizer,
                                   const Delimiters& delimiters, const PackLimits& limits) {
  PackedBranch branch;
  branch.tokens.push_back(delimiters.question);
  CHORUS_TRY(append_text(question.instructions, tokenizer, branch.tokens));
  for (const Option& option : question.options) {
    branch.tokens.push_back(delimiters.option_start);
    CHORUS_TRY(append_text(option.text, tokenizer, branch.tokens));
    branch.option_ends.push_back(static_cast<uint32_t>(branch.tokens.size()));
    branch.tokens.push_back(delimiters.option_end);
  }
  branch.decide = static_cast<uint32_t>(branch.tokens.size());
  branch.tokens.push_back(delimiters.decide);
  if (state_tokens + branch.tokens.size() > limits.row_tokens_max) {
    return make_error(ErrorCode::limit_exceeded, "questions." + question.id.substr(0, 64) + ": its " + grouped(branch.tokens.size()) +
                                                     " tokens after a state of " + grouped(state_tokens) +
                                                     " tokens are over the row limit of " + grouped(limits.row_tokens_max));
  }
  return branch;
}

Result<PackedDecision> pack(const DecisionRequest& request, const formats::Tokenizer& tokenizer, const PackLimits& limits) {
  CHORUS_ASSIGN(const Delimiters delimiters, find_delimiters(tokenizer));
  PackedDecision packed;
  CHORUS_ASSIGN(packed.state, pack_state(request.state, tokenizer, delimiters, limits));
  packed.input_tokens = packed.state.tokens.size();
  packed.branches.reserve(request.questions.size());
  for (const Question& question : request.questions) {
    CHORUS_ASSIGN(PackedBranch branch, pack_question(question, packed.state.tokens.size(), tokenizer, delimiters, limits));
    packed.input_tokens += branch.tokens.size();
    packed.branches.push_back(std::move(branch));
  }
  return packed;
}

}  // namespace chorus::decisions
