// Unicode as the tokenizer needs it: UTF-8, character classes of the reference's split patterns, NFC as the reference computes it.
// Classes come from our own table (Unicode 16, unicode_tables.inc), decomposition and composition from utf8proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace chorus::formats {

enum class CharacterClass : uint8_t { other, letter, mark, number, space };  // \p{L}, \p{M}, \p{N}, \s

CharacterClass character_class(uint32_t character);
// \w of the reference's added-token rules: letters, marks, decimal digits, connectors, joiners.
bool is_word_character(uint32_t character);

// Error names the first bad byte. Overlong forms, surrogates and values past U+10FFFF are invalid.
Status check_utf8(std::string_view text);
// Character at `at`, which moves past it. The text must have passed check_utf8 and `at` must be at a character's first byte.
uint32_t next_character(std::string_view text, size_t& at);
// Character that ends before `end`, which moves to its first byte.
uint32_t previous_character(std::string_view text, size_t& end);
void append_utf8(std::string& out, uint32_t character);
// Every maximal broken part becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

// Valid UTF-8 in NFC. Time n log n for any text: utf8proc's own reordering is quadratic in the marks on one letter, so we sort.
Result<std::string> normalize_nfc(std::string_view text);

}  // namespace chorus::formats
