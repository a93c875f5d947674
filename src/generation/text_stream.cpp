#include "generation/text_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "formats/unicode.h"

namespace chorus::generation {

Status check_stop_strings(const std::vector<std::string>& stops) {
  if (stops.size() > kStopStringsMax) {
    return make_error(ErrorCode::limit_exceeded,
                      "stop strings: " + std::to_string(stops.size()) + ", over the limit of " + std::to_string(kStopStringsMax));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return make_error(ErrorCode::invalid_argument, "stop string: expected a text, found an empty one");
    if (stop.size() > kStopBytesMax) {
      return make_error(ErrorCode::limit_exceeded,
                        "stop string: " + std::to_string(stop.size()) + " bytes, over the limit of " + std::to_string(kStopBytesMax));
    }
    if (Status valid = formats::check_utf8(stop); !valid) return std::move(valid).error().with_context("reading a stop string");
  }
  return {};
}

size_t incomplete_character_bytes(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const auto lead = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((lead & 0xc0) == 0x80) continue;  // inside a character
    const size_t length = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
    if (length <= back) return 0;
    if (back == 1) return 1;
    // The second byte's range depends on the first (Unicode 16, table 3-7).
    const auto second = static_cast<unsigned char>(bytes[bytes.size() - back + 1]);
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high ? back : 0;
  }
  return 0;
}

TextStream::TextStream(formats::Tokenizer tokenizer, std::vector<std::string> stops, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)), skip_special_tokens_(skip_special_tokens) {}

Result<std::string> TextStream::add(uint32_t token) {
  if (stopped_) return std::string();
  auto bytes = tokenizer_.token_bytes(token);
  if (!bytes) {
    if (bytes.error().code == ErrorCode::not_found) return std::string();
    return std::move(bytes).error();
  }
  if (skip_special_tokens_) {
    CHORUS_ASSIGN(const std::string shown, tokenizer_.decode(std::span(&token, 1), true));
    if (shown.empty()) return std::string();
  }
  bytes_ += *bytes;
  const size_t whole = bytes_.size() - incomplete_character_bytes(bytes_);
  const std::string text = formats::replace_invalid_utf8(std::string_view(bytes_).substr(0, whole));
  bytes_.erase(0, whole);
  return take_text(text);
}

// Byte by byte, so that the result does not depend on how the text was cut into tokens.
std::string TextStream::take_text(std::string_view text) {
  if (stops_.empty()) return std::string(text);
  for (const char byte : text) {
    held_ += byte;
    const std::string* longest = nullptr;
    for (const std::string& stop : stops_) {
      if (stop.back() == byte && held_.ends_with(stop) && (longest == nullptr || stop.size() > longest->size())) longest = &stop;
    }
    if (longest == nullptr) continue;
    stopped_ = true;
    stop_ = *longest;
    std::string out = held_.substr(0, held_.size() - longest->size());
    held_.clear();
    bytes_.clear();
    return out;
  }
  size_t keep = 0;  // the longest end of the text that begins a stop string
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (std::string_view(held_).substr(held_.size() - length) == std::string_view(stop).substr(0, length)) keep = length;
    }
  }
  // Stop strings and text are whole characters, so what is kept begins with one.
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string TextStream::finish() {
  if (stopped_) return {};
  std::string out = take_text(formats::replace_invalid_utf8(std::exchange(bytes_, {})));
  if (!stopped_) out += std::exchange(held_, {});
  return out;
}

}  // namespace chorus::generation
