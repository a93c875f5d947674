// Template text to syntax tree, with Jinja's grammar as far as chat templates go. Not here: include, import, extends, block, *args in
// calls.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/jinja/syntax.h"

namespace chorus::generation::jinja {

inline constexpr size_t kTemplateBytesMax = 1u << 20;
inline constexpr uint32_t kSyntaxDepthMax = 100;  // of nested statements and, separately, expressions

// Errors are one line with the line of the template.
Result<std::vector<Statement>> parse(std::string_view source);

}  // namespace chorus::generation::jinja
