#include "base/result.h"

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace chorus {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_input:
      return "invalid_input";
    case ErrorCode::limit_exceeded:
      return "limit_exceeded";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::io_failed:
      return "io_failed";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device_lost:
      return "device_lost";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

namespace {

// Bytes and code point of the UTF-8 character that starts at `at`; 0 bytes where none does.
struct Character {
  size_t bytes = 0;
  uint32_t code_point = 0;
};

Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t index) { return static_cast<uint8_t>(text[index]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {1, first};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes > text.size() - at) return {};
  uint32_t code_point = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {};
    code_point = code_point << 6 | (byte(at + i) & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < kSmallest[bytes] || code_point > 0x10ffff || surrogate) return {};
  return {bytes, code_point};
}

// Controls, line and paragraph separators, and what turns the direction of text: they could break the line or fake another one.
bool disturbs_a_line(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Messages hold names from files, requests and command lines; whatever those are, the result is one line of valid UTF-8.
void append_one_line(std::string& out, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes != 0 && !disturbs_a_line(character.code_point)) {
      out.append(text, at, bytes);
    } else {
      for (size_t i = 0; i < bytes; ++i) {
        char escape[5];
        std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<uint8_t>(text[at + i]));
        out += escape;
      }
    }
    at += bytes;
  }
}

}  // namespace

std::string Error::to_line() const {
  std::string line;
  append_one_line(line, message);
  for (const std::string& step : context) {
    line += "; ";
    append_one_line(line, step);
  }
  return line;
}

}  // namespace chorus
