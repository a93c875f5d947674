#include "decisions/render.h"

#include <algorithm>

#include "formats/unicode.h"

namespace chorus::decisions {
namespace {

using formats::JsonKind;
using formats::JsonValue;

// What Python's str.lstrip removes.
bool is_python_space(uint32_t character) {
  return (character >= 0x09 && character <= 0x0D) || (character >= 0x1C && character <= 0x20) || character == 0x85 || character == 0xA0 ||
         character == 0x1680 || (character >= 0x2000 && character <= 0x200A) || character == 0x2028 || character == 0x2029 ||
         character == 0x202F || character == 0x205F || character == 0x3000;
}

std::string_view without_leading_space(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t next = at;
    if (!is_python_space(formats::next_character(text, next))) return text.substr(at);
    at = next;
  }
  return {};
}

bool is_container(const JsonValue& value) { return value.is_array() || value.is_object(); }

std::string scalar_text(const JsonValue& value) {
  if (const std::string* text = value.string_if()) return *text;
  if (const bool* flag = value.boolean_if()) return *flag ? "True" : "False";
  if (const std::string* digits = value.integer_digits_if()) return *digits;
  if (const double* number = value.floating_if()) return formats::python_float_text(*number);
  return {};
}

// Appends the text of a value at a depth. `stripped`: without white space at its start, which is how an array takes its items; done while
// writing, so that deep nesting copies nothing again.
void append_rendered(std::string& out, const JsonValue& value, size_t depth, bool stripped) {
  const auto pad = [&](bool first) {
    if (!(first && stripped)) out.append(2 * depth, ' ');
  };
  if (value.is_array()) {
    bool first = true;
    for (const JsonValue& item : value.items()) {
      if (!first) out += '\n';
      pad(first);
      out += "- ";
      append_rendered(out, item, depth + 1, true);
      first = false;
    }
  } else if (value.is_object()) {
    bool first = true;
    for (const formats::JsonMember& member : value.members()) {
      if (!first) out += '\n';
      pad(first);
      out += first && stripped ? without_leading_space(member.key) : std::string_view(member.key);
      out += is_container(member.value) ? ":\n" : ": ";
      append_rendered(out, member.value, depth + 1, false);
      first = false;
    }
  } else {
    const std::string text = scalar_text(value);
    out += stripped ? without_leading_space(text) : std::string_view(text);
  }
}

bool is_marker_name(char byte) {
  return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '_';
}

}  // namespace

std::string render(const JsonValue& value) {
  std::string out;
  append_rendered(out, value, 0, false);
  return out;
}

std::string escape_markers(std::string_view text) {
  constexpr std::string_view kBrokenBar = "\xC2\xA6";
  std::string out;
  size_t copied = 0;
  for (size_t open = text.find("<|"); open != std::string_view::npos;) {
    size_t end = open + 2;
    while (end < text.size() && is_marker_name(text[end])) ++end;
    if (end > open + 2 && text.substr(end, 2) == "|>") {
      out += text.substr(copied, open + 1 - copied);
      out += kBrokenBar;
      out += text.substr(open + 2, end - open - 2);
      out += kBrokenBar;
      out += '>';
      end += 2;
      copied = end;
    }
    open = text.find("<|", end);
  }
  out += text.substr(copied);
  return out;
}

}  // namespace chorus::decisions
