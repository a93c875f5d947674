#include "formats/split_pattern.h"

#include <algorithm>

#include "formats/unicode.h"

namespace chorus::formats {
namespace {

struct KnownPattern {
  std::string_view expression;
  SplitPattern pattern;
};

constexpr KnownPattern kKnownPatterns[] = {
    // Qwen2, Qwen2.5, Qwen3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.marks_are_letters = false, .digits_max = 1}},
    // Qwen3.5
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.marks_are_letters = true, .digits_max = 1}},
    // Llama 3, GLM-4
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.marks_are_letters = false, .digits_max = 3}},
};

enum class Kind : uint8_t { letter, number, space, other };

struct Scanner {
  const SplitPattern& pattern;
  std::string_view text;

  bool done(size_t at) const { return at >= text.size(); }

  Kind kind_of(uint32_t character) const {
    switch (character_class(character)) {
      case CharacterClass::letter:
        return Kind::letter;
      case CharacterClass::mark:
        return pattern.marks_are_letters ? Kind::letter : Kind::other;
      case CharacterClass::number:
        return Kind::number;
      case CharacterClass::space:
        return Kind::space;
      case CharacterClass::other:
        break;
    }
    return Kind::other;
  }

  Kind kind_at(size_t at) const { return kind_of(next_character(text, at)); }

  // First place at or after `at` whose character is not of this kind; at most `count` characters on.
  size_t skip(size_t at, Kind kind, size_t count = SIZE_MAX) const {
    while (!done(at) && count-- > 0) {
      size_t next = at;
      if (kind_of(next_character(text, next)) != kind) break;
      at = next;
    }
    return at;
  }

  // The expression ignores case by Unicode's folding, where U+017F is another s.
  static char folded(uint32_t character) {
    if (character == 0x17Fu) return 's';
    if (character >= 'A' && character <= 'Z') return static_cast<char>(character - 'A' + 'a');
    return character < 0x80u ? static_cast<char>(character) : '\0';
  }

  // 's 't 're 've 'm 'll 'd after an apostrophe; `at` itself when there is none.
  size_t contraction_end(size_t at) const {
    if (text[at] != '\'' || done(at + 1)) return at;
    size_t next = at + 1;
    const char first = folded(next_character(text, next));
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return next;
    if (done(next)) return at;
    const char second = folded(next_character(text, next));
    const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? next : at;
  }

  // Through the last newline of the white space at `at`; else all of it at the end of the text, or all but its last character.
  size_t white_space_end(size_t at) const {
    const size_t end = skip(at, Kind::space);
    const size_t newline = text.substr(at, end - at).find_last_of("\r\n");
    if (newline != std::string_view::npos) return at + newline + 1;
    if (done(end)) return end;
    size_t last = end;
    previous_character(text, last);
    return last > at ? last : end;
  }

  size_t piece_end(size_t at) const {
    if (const size_t end = contraction_end(at); end != at) return end;

    size_t after_first = at;
    const uint32_t first = next_character(text, after_first);
    const Kind kind = kind_of(first);
    if (kind == Kind::letter) return skip(after_first, Kind::letter);
    if (kind == Kind::number) return skip(at, Kind::number, pattern.digits_max);

    const bool newline = first == '\r' || first == '\n';
    const bool more = !done(after_first);
    if (!newline && more && kind_at(after_first) == Kind::letter) return skip(after_first, Kind::letter);
    if (kind == Kind::other || (first == ' ' && more && kind_at(after_first) == Kind::other)) {
      const size_t end = skip(kind == Kind::other ? at : after_first, Kind::other);
      return std::min(text.find_first_not_of("\r\n", end), text.size());
    }
    return white_space_end(at);
  }
};

}  // namespace

std::optional<SplitPattern> recognize_split_pattern(std::string_view expression) {
  for (const KnownPattern& known : kKnownPatterns) {
    if (known.expression == expression) return known.pattern;
  }
  return std::nullopt;
}

size_t split_piece_end(const SplitPattern& pattern, std::string_view text, size_t start) { return Scanner{pattern, text}.piece_end(start); }

}  // namespace chorus::formats
