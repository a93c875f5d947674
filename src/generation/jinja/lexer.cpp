#include "generation/jinja/lexer.h"

#include <algorithm>

#include "base/bytes.h"
#include "formats/unicode.h"
#include "generation/jinja/python_text.h"

namespace chorus::generation::jinja {

Error template_error(uint32_t line, const std::string& what, ErrorCode code) {
  return make_error(code, "chat template: line " + std::to_string(line) + ": " + what);
}

namespace {

// Longer marks first.
constexpr std::string_view kMarks[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) CHORUS_TRY(read_data());
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view what, size_t at) const { return text_.compare(at, what.size(), what) == 0; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void advance(size_t count) {
    line_ += static_cast<uint32_t>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  void skip_space() {
    const std::string_view rest = std::string_view(text_).substr(at_);
    advance(rest.size() - strip_text(rest, {}, true, false).size());
  }

  // Where the next "{{", "{%" or "{#" stands.
  size_t find_opening() const {
    for (size_t at = text_.find('{', at_); at != std::string::npos; at = text_.find('{', at + 1)) {
      if (at + 1 < text_.size() && (text_[at + 1] == '{' || text_[at + 1] == '%' || text_[at + 1] == '#')) return at;
    }
    return text_.size();
  }

  // The text before a tag, less what the tag's sign or lstrip_blocks takes away.
  std::string_view stripped(std::string_view data, char sign, bool output) const {
    if (sign == '-') return strip_text(data, {}, false, true);
    if (sign == '+' || output) return data;
    const size_t newline = data.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if (start == 0 && !line_starting_) return data;
    const bool blank = strip_text(data.substr(start), {}, true, false).empty();
    return blank ? data.substr(0, start) : data;
  }

  Status read_data() {
    const size_t found = find_opening();
    const uint32_t line = line_;
    const std::string_view data = std::string_view(text_).substr(at_, found - at_);
    const bool at_end = found == text_.size();
    const char kind = at_end ? '\0' : text_[found + 1];
    const char next = found + 2 < text_.size() ? text_[found + 2] : '\0';
    const char sign = !at_end && (next == '-' || next == '+') ? next : '\0';
    const std::string kept(at_end ? data : stripped(data, sign, kind == '{'));
    if (!kept.empty()) tokens_.push_back({TokenKind::data, kept, line});
    advance(found - at_);
    if (at_end) return {};
    tag_line_ = line_;
    advance(sign != '\0' ? 3 : 2);
    if (kind == '#') return read_comment();
    if (kind == '%' && starts_raw()) return read_raw();
    tokens_.push_back({kind == '{' ? TokenKind::output_begin : TokenKind::block_begin, "", line_});
    return read_tag(kind == '{');
  }

  // After the closing mark of a comment or block: `sign` stands before it.
  void close(char sign, bool trims_newline) {
    const size_t before = at_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims_newline && peek() == '\n') {
      advance(1);
    }
    line_starting_ = at_ > before && text_[at_ - 1] == '\n';
  }

  Status read_comment() {
    const size_t found = text_.find("#}", at_);
    if (found == std::string::npos) return template_error(tag_line_, "a comment {# has no end");
    const char sign = found > at_ ? text_[found - 1] : '\0';
    advance(found + 2 - at_);
    close(sign, true);
    return {};
  }

  // Whether a word and the end of a block stand at `at`; moves past them. The end's sign goes to `sign`.
  bool match_word_block(size_t& at, std::string_view word, char& sign) const {
    while (at < text_.size() && is_space(text_[at])) ++at;
    if (!starts(word, at)) return false;
    at += word.size();
    while (at < text_.size() && is_space(text_[at])) ++at;
    sign = at < text_.size() ? text_[at] : '\0';
    if (sign == '-' || sign == '+') {
      ++at;
    } else {
      sign = '\0';
    }
    if (!starts("%}", at)) return false;
    at += 2;
    return true;
  }

  bool starts_raw() const {
    size_t at = at_;
    char sign = '\0';
    return match_word_block(at, "raw", sign);
  }

  Status read_raw() {
    size_t at = at_;
    char sign = '\0';
    match_word_block(at, "raw", sign);
    advance(at - at_);
    if (sign == '-') skip_space();
    line_starting_ = false;
    for (size_t found = text_.find("{%", at_); found != std::string::npos; found = text_.find("{%", found + 1)) {
      size_t end = found + 2;
      const char opening = end < text_.size() ? text_[end] : '\0';
      if (opening == '-' || opening == '+') ++end;
      char closing = '\0';
      if (!match_word_block(end, "endraw", closing)) continue;
      const std::string_view data = std::string_view(text_).substr(at_, found - at_);
      const std::string kept(stripped(data, opening, false));
      if (!kept.empty()) tokens_.push_back({TokenKind::data, kept, line_});
      advance(end - at_);
      close(closing, true);
      return {};
    }
    return template_error(tag_line_, "{% raw %} has no {% endraw %}");
  }

  Status read_tag(bool output) {
    const std::string_view closing = output ? "}}" : "%}";
    std::vector<char> open;  // brackets that wait for their partner
    while (true) {
      while (at_ < text_.size() && is_space(text_[at_])) advance(1);
      if (at_ >= text_.size()) return template_error(tag_line_, std::string("a tag ") + (output ? "{{" : "{%") + " has no end");
      if (open.empty()) {
        const char sign = peek() == '-' || (peek() == '+' && !output) ? peek() : '\0';
        const size_t skip = sign != '\0' ? 1 : 0;
        if (starts(closing, at_ + skip)) {
          tokens_.push_back({output ? TokenKind::output_end : TokenKind::block_end, "", line_});
          advance(skip + 2);
          close(sign, !output);
          return {};
        }
      }
      CHORUS_TRY(read_token(open));
    }
  }

  Status read_token(std::vector<char>& open) {
    const char c = peek();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end]))) ++end;
      tokens_.push_back({TokenKind::name, text_.substr(at_, end - at_), line_});
      advance(end - at_);
      return {};
    }
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string(c);
    for (const std::string_view mark : kMarks) {
      if (!starts(mark, at_)) continue;
      CHORUS_TRY(balance(mark, open));
      tokens_.push_back({TokenKind::mark, std::string(mark), line_});
      advance(mark.size());
      return {};
    }
    return template_error(line_, "unexpected character " + quote_text(std::string_view(text_).substr(at_, character_length())));
  }

  size_t character_length() const {
    size_t end = at_;
    formats::next_character(text_, end);
    return end - at_;
  }

  Status balance(std::string_view mark, std::vector<char>& open) const {
    if (mark == "(" || mark == "[" || mark == "{") {
      open.push_back(mark[0] == '(' ? ')' : mark[0] == '[' ? ']' : '}');
    } else if (mark == ")" || mark == "]" || mark == "}") {
      if (open.empty()) return template_error(line_, "unexpected '" + std::string(mark) + "'");
      if (open.back() != mark[0]) {
        return template_error(line_, "unexpected '" + std::string(mark) + "', expected '" + std::string(1, open.back()) + "'");
      }
      open.pop_back();
    }
    return {};
  }

  // Decimal integers and floats; underscores between digits.
  Status read_number() {
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::mark && tokens_.back().text == ".";
    std::string digits;
    size_t at = at_;
    auto read_digits = [&] {
      while (at < text_.size() && (is_digit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() && is_digit(text_[at + 1])))) {
        if (text_[at] != '_') digits += text_[at];
        ++at;
      }
    };
    read_digits();
    bool floating = false;
    if (!after_dot && at + 1 < text_.size() && text_[at] == '.' && is_digit(text_[at + 1])) {
      floating = true;
      digits += text_[at++];
      read_digits();
    }
    if (!after_dot && at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      size_t exponent = at + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        floating = true;
        digits.append(text_, at, exponent - at);
        at = exponent;
        read_digits();
      }
    }
    tokens_.push_back({floating ? TokenKind::floating : TokenKind::integer, digits, line_});
    advance(at - at_);
    return {};
  }

  Status read_string(char quote) {
    const uint32_t line = line_;
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return template_error(line, "a string has no end");
    CHORUS_ASSIGN(std::string value, unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1), line));
    tokens_.push_back({TokenKind::string, std::move(value), line});
    advance(end + 1 - at_);
    return {};
  }

  // Python's escapes; an unknown one stays as it is.
  static Result<std::string> unescape(std::string_view raw, uint32_t line) {
    std::string out;
    for (size_t at = 0; at < raw.size();) {
      if (raw[at] != '\\' || at + 1 >= raw.size()) {
        out += raw[at++];
        continue;
      }
      const char c = raw[at + 1];
      at += 2;
      constexpr std::string_view kNames = "abfnrtv\\'\"", kBytes = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
        out += kBytes[simple];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        CHORUS_TRY(append_code(raw, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, line, out));
      } else if (c >= '0' && c <= '7') {
        --at;
        size_t length = 1;
        while (length < 3 && at + length < raw.size() && raw[at + length] >= '0' && raw[at + length] <= '7') ++length;
        CHORUS_TRY(append_code(raw, at, length, 8, line, out));
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  static Status append_code(std::string_view raw, size_t& at, size_t length, uint32_t base, uint32_t line, std::string& out) {
    uint32_t code = 0;
    bool good = at + length <= raw.size();
    for (size_t i = 0; good && i < length; ++i) {
      const char c = raw[at + i];
      const uint32_t digit = is_digit(c)                          ? static_cast<uint32_t>(c - '0')
                             : (c | 32) >= 'a' && (c | 32) <= 'f' ? static_cast<uint32_t>((c | 32) - 'a' + 10)
                                                                  : 99;
      good = digit < base && code < (1u << 27);
      code = code * base + digit;
    }
    if (!good || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return template_error(line, "a string has a broken escape");
    at += length;
    formats::append_utf8(out, code);
    return {};
  }

  std::string text_;
  size_t at_ = 0;
  uint32_t line_ = 1, tag_line_ = 1;
  bool line_starting_ = true;  // the last tag's match ended a line
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace chorus::generation::jinja
