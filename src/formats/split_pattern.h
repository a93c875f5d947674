// The regular expression that cuts text into the pieces which byte-pair merges work on, matched by a scanner of ours: one pass, no
// backtracking, no regular-expression library. Known expressions are recognised by their text; any other is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus::formats {

// The expressions of one family; they differ in two places.
//   contraction | [^\r\n\p{L}\p{N}]?LETTER+ | \p{N}{1,digits_max} | ?[^\s LETTER \p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
struct SplitPattern {
  bool marks_are_letters = false;  // LETTER is [\p{L}\p{M}] (Qwen3.5) instead of \p{L} (Qwen2)
  uint32_t digits_max = 1;
};

std::optional<SplitPattern> recognize_split_pattern(std::string_view expression);

// End of the piece that starts at `start`; start < text.size(), valid UTF-8. The pieces cover the text.
size_t split_piece_end(const SplitPattern& pattern, std::string_view text, size_t start);

}  // namespace chorus::formats
