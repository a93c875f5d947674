// *.golden.jsonl: a JSON value a line.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "formats/json.h"

namespace chorus::verify {

struct ReferenceRow {
  size_t line = 0;  // from 1
  formats::JsonValue value;
};

// All rows, so that a file that is damaged further down is refused before anything is compared. Empty lines are left out; a file without
// any row is an error, which names the `row` it expected ("prompt", "request").
Result<std::vector<ReferenceRow>> read_reference_rows(const std::filesystem::path& golden, const char* row);

}  // namespace chorus::verify
