// Python's operations on text, over UTF-8. Positions and lengths count characters where the name says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::generation::jinja {

bool is_python_space(uint32_t character);  // str.isspace()
// str.strip() and its halves; `characters` absent: white space.
std::string_view strip_text(std::string_view text, std::optional<std::string_view> characters, bool left, bool right);
// str.split(): without separator, runs of white space; splits_max < 0: no limit.
std::vector<std::string> split_text(std::string_view text, std::optional<std::string_view> separator, int64_t splits_max);
std::vector<std::string> split_text_right(std::string_view text, std::string_view separator, int64_t splits_max);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count);
std::string python_quoted(std::string_view text);  // repr()
// Case of ASCII letters; other characters stay as they are.
std::string upper_text(std::string_view text);
std::string lower_text(std::string_view text);
std::string title_text(std::string_view text);
std::string capitalize_text(std::string_view text);

size_t character_count(std::string_view text);
std::vector<std::string_view> split_characters(std::string_view text);

}  // namespace chorus::generation::jinja
