#include "verify/reference_rows.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace chorus::verify {

Result<std::vector<ReferenceRow>> read_reference_rows(const std::filesystem::path& golden, const char* row) {
  errno = 0;
  std::ifstream file(golden);
  if (!file) {
    return make_error(ErrorCode::not_found, golden.string() + ": cannot open: " + std::strerror(errno != 0 ? errno : ENOENT));
  }
  std::vector<ReferenceRow> rows;
  std::string text;
  for (size_t line = 1; std::getline(file, text); ++line) {
    if (text.empty()) continue;
    auto value = formats::parse_json(text);
    if (!value) return std::move(value).error().with_context("in line " + std::to_string(line) + " of " + golden.string());
    rows.push_back({line, std::move(value).value()});
  }
  if (rows.empty()) return make_error(ErrorCode::invalid_input, golden.string() + ": holds no " + row);
  return rows;
}

}  // namespace chorus::verify
