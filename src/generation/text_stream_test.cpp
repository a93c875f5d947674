#include "generation/text_stream.h"

#include <gtest/gtest.h>

#include "formats/test_files.h"
#include "formats/test_tools.h"
#include "formats/unicode.h"

namespace chorus::generation {
namespace {

using formats::Tokenizer;
using formats::testing::expect_error;

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = [] {
    auto parsed = Tokenizer::parse(formats::read_test_file(std::string(CHORUS_MODELS) + "/kev-mini-base/tokenizer.json"));
    EXPECT_TRUE(parsed.ok());
    return std::move(parsed).value();
  }();
  return loaded;
}

// Tokens of one byte each: the hardest way to get a text.
std::vector<uint32_t> byte_tokens(std::string_view text) {
  std::vector<uint32_t> tokens;
  for (const char c : text) {
    for (uint32_t id = 0; id < tokenizer().vocabulary_size(); ++id) {
      const auto bytes = tokenizer().token_bytes(id);
      if (bytes.ok() && bytes->size() == 1 && (*bytes)[0] == c) {
        tokens.push_back(id);
        break;
      }
    }
  }
  EXPECT_EQ(tokens.size(), text.size());
  return tokens;
}

struct Streamed {
  std::string text;
  std::vector<std::string> pieces;
  bool stopped = false;
};

Streamed stream(const std::vector<uint32_t>& tokens, std::vector<std::string> stops = {}, bool skip = true) {
  Streamed result;
  TextStream out(tokenizer(), std::move(stops), skip);
  const auto take = [&](const std::string& piece) {
    EXPECT_TRUE(formats::check_utf8(piece).ok()) << "a split character in " << piece;
    result.text += piece;
    result.pieces.push_back(piece);
  };
  for (const uint32_t token : tokens) {
    auto piece = out.add(token);
    EXPECT_TRUE(piece.ok());
    if (piece.ok()) take(*piece);
  }
  take(out.finish());
  result.stopped = out.stopped();
  return result;
}

constexpr const char* kTexts[] = {"plain text", "Grüße, 漢字 und 😀👩‍👩‍👧!", "é", "", "a\u0301\u0302 \U0010ffff", "💥"};

TEST(TextStream, PiecesJoinToTheWholeText) {
  for (const std::string text : kTexts) {
    const auto ids = tokenizer().encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(stream(*ids).text, *tokenizer().decode(*ids, true));
    EXPECT_EQ(stream(byte_tokens(text)).text, text);
  }
}

TEST(TextStream, BrokenBytesBecomeWhatTheWholeDecodeSays) {
  for (const std::string bytes : {"\xff", "a\xc3", "\xe6\xbc", "\xf0\x9f\x98", "\xed\xa0\x80z", "\xf0\x80\x80\x80", "\x80\x80é",
                                  "\xe6\xbc"
                                  "a",
                                  "\xf4\x90\x80\x80", "\xc0\xaf", "x\xe0\x80"}) {
    const std::vector<uint32_t> tokens = byte_tokens(bytes);
    EXPECT_EQ(stream(tokens).text, *tokenizer().decode(tokens, true));
  }
}

TEST(TextStream, CharactersComeOnlyWhole) {
  const Streamed streamed = stream(byte_tokens("é😀"));
  EXPECT_EQ(streamed.pieces, (std::vector<std::string>{"", "é", "", "", "", "😀", ""}));
}

TEST(TextStream, SpecialTokensAreSkipped) {
  const auto special = tokenizer().token_id("<|im_end|>");
  ASSERT_TRUE(special);
  std::vector<uint32_t> tokens = byte_tokens("a\xc3");
  tokens.push_back(*special);
  tokens.push_back(byte_tokens("\xa9")[0]);
  EXPECT_EQ(stream(tokens).text, "aé") << "as decode does with special tokens skipped";
  EXPECT_EQ(stream({*special}, {}, false).text, "<|im_end|>");
  EXPECT_EQ(stream({tokenizer().vocabulary_size() + 5}).text, "") << "a row of the embedding past the tokenizer";
}

TEST(TextStream, StopStringsEndTheText) {
  const std::string text = "one two\n\nthree END four";
  for (const bool by_bytes : {false, true}) {
    const std::vector<uint32_t> tokens = by_bytes ? byte_tokens(text) : *tokenizer().encode(text);
    EXPECT_EQ(stream(tokens, {"END"}).text, "one two\n\nthree ");
    EXPECT_TRUE(stream(tokens, {"END"}).stopped);
    EXPECT_EQ(stream(tokens, {"\n\n", "END"}).text, "one two");
    EXPECT_EQ(stream(tokens, {"wo\n\nth"}).text, "one t");
    EXPECT_EQ(stream(tokens, {"four!", "ENDE", "o four"}).text, text) << "beginnings that come to nothing";
    EXPECT_EQ(stream(tokens, {"o two", "two", "e two"}).text, "on") << "of those that end first the longest";
    EXPECT_EQ(stream(tokens, {"one"}).text, "");
    EXPECT_EQ(stream(tokens, {"four"}).text, "one two\n\nthree END ");
    EXPECT_FALSE(stream(tokens, {"five"}).stopped);
  }
}

TEST(TextStream, WhatMayBeAStopIsHeldBack) {
  const Streamed streamed = stream(byte_tokens("abcabd"), {"abd"});
  EXPECT_EQ(streamed.pieces, (std::vector<std::string>{"", "", "abc", "", "", "", ""}));
  EXPECT_EQ(stream(byte_tokens("aab"), {"aab"}).text, "");
  EXPECT_EQ(stream(byte_tokens("aaab"), {"aab"}).text, "a");
  EXPECT_EQ(stream(byte_tokens("x漢"), {"漢字"}).text, "x漢");
  EXPECT_EQ(stream(byte_tokens("x漢字y"), {"漢字"}).text, "x");
}

TEST(TextStream, StopStringsAreChecked) {
  EXPECT_TRUE(check_stop_strings({"a", "b"}).ok());
  expect_error(check_stop_strings({""}), "empty");
  expect_error(check_stop_strings({"\xff"}), "stop string");
  expect_error(check_stop_strings({std::string(5000, 'a')}), "over the limit");
  expect_error(check_stop_strings(std::vector<std::string>(65, "a")), "over the limit");
}

}  // namespace
}  // namespace chorus::generation
