// JSON values to the text that the model reads (kev.md 2.2 to 2.5, 3.1). Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "formats/json.h"

namespace chorus::decisions {

// YAML-like text of any JSON value; null is empty.
std::string render(const formats::JsonValue& value);

// Caller text must not be able to write a delimiter: every `<|name|>` gets U+00A6 in place of its bars.
std::string escape_markers(std::string_view text);

// The state with a `date_facts` annotation that says how many days lie between the dates named in it; unchanged with fewer than two
// dates. An annotation that is already there is replaced, so that the step can be repeated. Only the first kDateFactsMax dates count:
// their sentences alone are longer than any model's context, so that such a state ends at the token limit.
inline constexpr size_t kDateFactsMax = 512;
formats::JsonValue with_date_facts(const formats::JsonValue& state);

}  // namespace chorus::decisions
