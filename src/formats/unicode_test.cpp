#include "formats/unicode.h"

#include <gtest/gtest.h>

namespace chorus::formats {
namespace {

std::string nfc(std::string_view text) {
  const auto result = normalize_nfc(text);
  return result.ok() ? *result : "error: " + result.error().message;
}

TEST(Unicode, ClassesAreThoseOfUnicode16) {
  EXPECT_EQ(character_class('a'), CharacterClass::letter);
  EXPECT_EQ(character_class(0x4E00), CharacterClass::letter);
  EXPECT_EQ(character_class(0x1C89), CharacterClass::letter);   // new in 16
  EXPECT_EQ(character_class(0x2EBF0), CharacterClass::letter);  // new in 15.1
  EXPECT_EQ(character_class(0x301), CharacterClass::mark);
  EXPECT_EQ(character_class(0xBD), CharacterClass::number);
  EXPECT_EQ(character_class(0x2167), CharacterClass::number);
  for (const uint32_t space : {0x09u, 0x0Du, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x200Au, 0x2029u, 0x202Fu, 0x205Fu, 0x3000u}) {
    EXPECT_EQ(character_class(space), CharacterClass::space) << space;
  }
  for (const uint32_t other : {0x1Cu, 0x200Bu, 0x200Du, 0xFEFFu, 0x1F600u, 0xE000u, 0x10FFFFu, 0x110000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(character_class(other), CharacterClass::other) << other;
  }
}

TEST(Unicode, InvalidUtf8IsFoundAndReplaced) {
  EXPECT_TRUE(check_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80").ok());
  EXPECT_EQ(check_utf8("ab\x80").error().message, "the text is not valid UTF-8 at byte 2");
  for (const char* bad : {"\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x82", "\xE0\x80\x80", "\xF0\x80\x80\x80"}) {
    EXPECT_FALSE(check_utf8(bad).ok()) << bad;
  }
  // One replacement for each maximal broken part, as the Unicode standard recommends.
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82"), "a\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82\x41"), "\xEF\xBF\xBD\x41");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), "\xEF\xBF\xBD");
}

TEST(Unicode, NfcComposesReordersAndKeepsHangulTails) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301 cafe\u0301"), "\u00E9 caf\u00E9");
  EXPECT_EQ(nfc("\u212B\u2126"), "\u00C5\u03A9");
  EXPECT_EQ(nfc("a\u0301\u0316"), "\u00E1\u0316");  // the lower mark does not block the upper one
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\uC0AC\u11A7"), "\uC0AC\u11A7");    // U+11A7 joins nothing
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");          // excluded from composition
  EXPECT_EQ(nfc("q\u07FD\u0316"), "q\u07FD\u0316");  // newer than the reference's data: left as it is
  EXPECT_EQ(nfc(std::string_view("a\0e\u0301", 5)), std::string("a\0\u00E9", 4));
}

TEST(Unicode, NfcOfEndlessMarksIsNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0316";  // alternating classes: the worst case of exchange sorting
  const std::string result = nfc(text);
  EXPECT_EQ(result.size(), text.size() - 1);  // a and the first acute become one character of two bytes
  EXPECT_TRUE(result.starts_with("\u00E1\u0316\u0316"));
  EXPECT_TRUE(result.ends_with("\u0301\u0301"));
}

TEST(Unicode, WordCharacters) {
  for (const uint32_t word : {uint32_t{'a'}, uint32_t{'_'}, uint32_t{'9'}, 0xE9u, 0x301u, 0x200Du, 0x2167u, 0x203Fu}) {
    EXPECT_TRUE(is_word_character(word)) << word;
  }
  for (const uint32_t other : {uint32_t{' '}, uint32_t{'-'}, 0xBDu, 0x1F600u, 0x3000u}) EXPECT_FALSE(is_word_character(other)) << other;
}

}  // namespace
}  // namespace chorus::formats
