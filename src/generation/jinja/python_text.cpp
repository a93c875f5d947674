#include "generation/jinja/python_text.h"

#include <algorithm>

#include "formats/unicode.h"

namespace chorus::generation::jinja {

namespace {

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool strips(uint32_t character, const std::optional<std::string_view>& characters) {
  if (!characters) return is_python_space(character);
  for (size_t at = 0; at < characters->size();) {
    if (formats::next_character(*characters, at) == character) return true;
  }
  return false;
}

}  // namespace

bool is_python_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view strip_text(std::string_view text, std::optional<std::string_view> characters, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!strips(formats::next_character(text, next), characters)) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t previous = end;
    if (!strips(formats::previous_character(text, previous), characters)) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> split_text(std::string_view text, std::optional<std::string_view> separator, int64_t splits_max) {
  std::vector<std::string> parts;
  if (separator) {
    while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
      const size_t found = text.find(*separator);
      if (found == std::string_view::npos) break;
      parts.emplace_back(text.substr(0, found));
      text.remove_prefix(found + separator->size());
    }
    parts.emplace_back(text);
    return parts;
  }
  text = strip_text(text, {}, true, splits_max < 0);
  while (!text.empty()) {
    size_t end = 0;
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) >= splits_max) {
      end = strip_text(text, {}, false, true).size();
    } else {
      for (size_t at = 0; at < text.size(); end = at) {
        if (is_python_space(formats::next_character(text, at))) break;
      }
    }
    parts.emplace_back(text.substr(0, end));
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) > splits_max) break;
    text = strip_text(text.substr(end), {}, true, false);
  }
  return parts;
}

std::vector<std::string> split_text_right(std::string_view text, std::string_view separator, int64_t splits_max) {
  std::vector<std::string> parts;
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const size_t found = text.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.emplace_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const uint32_t c = formats::next_character(text, at);
    if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
    if (c == 13 && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

// An empty `from` stands before every character and at the end.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  int64_t done = 0;
  if (from.empty()) {
    for (const std::string_view character : split_characters(text)) {
      if (count < 0 || done++ < count) out += to;
      out += character;
    }
    if (count < 0 || done < count) out += to;
    return out;
  }
  while (count < 0 || done < count) {
    const size_t found = text.find(from);
    if (found == std::string_view::npos) break;
    out.append(text.substr(0, found)).append(to);
    text.remove_prefix(found + from.size());
    ++done;
  }
  return out.append(text);
}

std::string python_quoted(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out += quote;
}

std::string upper_text(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), upper);
  return out;
}

std::string lower_text(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

std::string title_text(std::string_view text) {
  std::string out(text);
  bool inside = false;
  for (char& c : out) {
    c = inside ? lower(c) : upper(c);
    inside = is_ascii_letter(c);
  }
  return out;
}

std::string capitalize_text(std::string_view text) {
  std::string out = lower_text(text);
  if (!out.empty()) out[0] = upper(out[0]);
  return out;
}

size_t character_count(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    formats::next_character(text, at);
    characters.push_back(text.substr(start, at - start));
  }
  return characters;
}

}  // namespace chorus::generation::jinja
