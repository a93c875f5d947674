// A template's text as tokens, with Jinja's rules for white space as chat templates are rendered: trim_blocks and lstrip_blocks on, one
// newline at the end of the text dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace chorus::generation::jinja {

enum class TokenKind : uint8_t { data, output_begin, output_end, block_begin, block_end, name, string, integer, floating, mark, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // data, name, unescaped string, digits, mark
  uint32_t line = 1;
};

// The last token is `end`. Errors name the line. The text is valid UTF-8.
Result<std::vector<Token>> tokenize(std::string_view source);

// "chat template: line N: what"
Error template_error(uint32_t line, const std::string& what, ErrorCode code = ErrorCode::invalid_input);

}  // namespace chorus::generation::jinja
