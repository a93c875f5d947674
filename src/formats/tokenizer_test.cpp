#include "formats/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "formats/byte_pair.h"
#include "formats/split_pattern.h"
#include "formats/test_files.h"
#include "formats/unicode.h"

namespace chorus::formats {
namespace {

const std::string kMiniPath = std::string(CHORUS_MODELS) + "/kev-mini-base/tokenizer.json";

Result<Tokenizer> load(const std::string& path) { return Tokenizer::parse(read_test_file(path)); }

std::vector<uint32_t> ids_of(const JsonValue& list) {
  std::vector<uint32_t> ids;
  for (const JsonValue& item : list.items()) ids.push_back(static_cast<uint32_t>(*item.as_uint64("id")));
  return ids;
}

void expect_cases(const Tokenizer& tokenizer, std::span<const JsonValue> cases) {
  ASSERT_FALSE(cases.empty());
  for (const JsonValue& entry : cases) {
    const std::string& text = *entry.find("text")->string_if();
    const std::vector<uint32_t> expected = ids_of(*entry.find("ids"));
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << ids.error().to_line();
    EXPECT_EQ(*ids, expected) << json_dumps(entry);
    const auto decoded = tokenizer.decode(expected);
    ASSERT_TRUE(decoded.ok()) << decoded.error().to_line();
    EXPECT_EQ(*decoded, *entry.find("decoded")->string_if()) << json_dumps(entry);
  }
}

TEST(Tokenizer, GoldenTexts) {
  const auto golden = read_test_json(std::string(CHORUS_TEST_DATA) + "/tokenizer.golden.json");
  EXPECT_EQ(golden.items().size(), 27u);
  for (const char* model : {"kev-mini-base", "kev-mini"}) {
    const auto tokenizer = load(std::string(CHORUS_MODELS) + "/" + model + "/tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_line();
    expect_cases(*tokenizer, golden.items());
  }
}

// Made by the reference package: tests/data/make_tokenizer_cases.py.
TEST(Tokenizer, ReferenceCases) {
  const auto groups = read_test_json(std::string(CHORUS_TEST_DATA) + "/tokenizer.cases.json");
  EXPECT_EQ(groups.items().size(), 4u);
  for (const JsonValue& group : groups.items()) {
    const std::string path = std::string(CHORUS_TEST_DATA) + "/../../" + *group.find("tokenizer")->string_if();
    const auto tokenizer = load(path);
    ASSERT_TRUE(tokenizer.ok()) << path << ": " << tokenizer.error().to_line();
    expect_cases(*tokenizer, group.find("cases")->items());
  }
}

TEST(Tokenizer, TokensByText) {
  const auto tokenizer = load(kMiniPath);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->token_id("<|fim_prefix|>"), 1480u);
  EXPECT_EQ(tokenizer->token_id("<|no_such|>"), std::nullopt);
  EXPECT_EQ(tokenizer->vocabulary_size(), 1490u);
  EXPECT_EQ(*tokenizer->token_bytes(220), " ");
  EXPECT_EQ(tokenizer->token_bytes(1490).error().message, "the tokenizer has no token with the id 1490");
  EXPECT_FALSE(tokenizer->decode(std::vector<uint32_t>{0xFFFFFFFFu}).ok());
  EXPECT_EQ(*tokenizer->decode(std::vector<uint32_t>{1478, 311, 1479}, true), *tokenizer->token_bytes(311));
}

TEST(Tokenizer, InvalidTextIsRefused) {
  const auto tokenizer = load(kMiniPath);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->encode("ab\xC3").error().message, "the text is not valid UTF-8 at byte 2");
}

// The merge rule written down directly: lowest rank first, leftmost among equals.
std::vector<uint32_t> merged_slowly(std::vector<uint32_t> tokens,
                                    const std::function<std::pair<uint32_t, uint32_t>(uint32_t, uint32_t)>& merge) {
  while (true) {
    size_t best = tokens.size();
    uint32_t best_rank = ~0u, best_token = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto [rank, token] = merge(tokens[i], tokens[i + 1]);
      if (rank < best_rank) {
        best_rank = rank;
        best_token = token;
        best = i;
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = best_token;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BytePair, ShortAndLongPiecesFollowTheRule) {
  // Bytes are tokens 0..255; pair (l, r) merges to 256 + l % 7 * 7 + r % 7 for some pairs, with a rank that repeats nothing.
  const auto merge = [](uint32_t left, uint32_t right) -> std::pair<uint32_t, uint32_t> {
    if (left >= 305 || right >= 305 || (left * 31 + right * 17) % 3 == 0) return {~0u, 0};
    return {(left * 7919 + right * 104729) % 1'000'003, 256 + left % 7 * 7 + right % 7};
  };
  BytePairMerges merges;
  for (uint32_t i = 0; i < 256; ++i) merges.set_byte(static_cast<uint8_t>(i), i);
  for (uint32_t left = 0; left < 305; ++left) {
    for (uint32_t right = 0; right < 305; ++right) {
      if (const auto [rank, token] = merge(left, right); rank != ~0u) merges.set_merge(left, right, rank, token);
    }
  }
  uint64_t state = 12345;
  for (size_t length : {1u, 2u, 3u, 17u, 47u, 48u, 49u, 50u, 100u, 333u}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::string piece;
      std::vector<uint32_t> tokens;
      for (size_t i = 0; i < length; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const auto byte = static_cast<uint8_t>(repeat % 2 == 0 ? state >> 56 : (state >> 60) & 3u);  // odd rounds: few symbols, many ties
        piece += static_cast<char>(byte);
        tokens.push_back(byte);
      }
      std::vector<uint32_t> ids;
      merges.append_ids(piece, ids);
      EXPECT_EQ(ids, merged_slowly(tokens, merge)) << "length " << length << " repeat " << repeat;
    }
  }
}

// Near linear: sixteen times the text may cost little more than sixteen times the time. Quadratic would cost 256 times.
TEST(Tokenizer, LongPiecesAreNotQuadratic) {
  const auto tokenizer = load(kMiniPath);
  ASSERT_TRUE(tokenizer.ok());
  const auto seconds = [&](std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer->encode(text);
    EXPECT_TRUE(ids.ok());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const char* unit : {"thetheringand", " ", "\u0301\u0316", "<|", " \n x", "\u4f60\u597d"}) {
    const double small = seconds(unit, 32 << 10);
    const double large = seconds(unit, 512 << 10);
    EXPECT_LT(large, 100 * small + 0.5) << unit;
  }
}

TEST(SplitPattern, UnknownExpressionsAreNotGuessed) {
  EXPECT_FALSE(recognize_split_pattern(R"(\p{L}+|\s+)").has_value());
  EXPECT_FALSE(recognize_split_pattern("").has_value());
}

TEST(SplitPattern, PiecesCoverTheTextAndNeverStandStill) {
  const SplitPattern patterns[] = {{false, 1}, {true, 1}, {false, 3}};
  const std::string alphabet[] = {"a", "Z", "1",      " ",      "\n",     "\r", "\t",     "'",
                                  "s", "!", "\u0301", "\u00A0", "\u4F60", "l",  "\u017F", "\U0001F600"};
  uint64_t state = 1;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      text += alphabet[state >> 60];
    }
    for (const SplitPattern& pattern : patterns) {
      for (size_t at = 0; at < text.size();) {
        const size_t end = split_piece_end(pattern, text, at);
        ASSERT_GT(end, at);
        ASSERT_LE(end, text.size());
        ASSERT_TRUE(check_utf8(text.substr(at, end - at)).ok());
        at = end;
      }
    }
  }
}

// A small tokenizer.json, to be damaged.
const JsonValue& small_document() {
  static const JsonValue document = read_test_json(std::string(CHORUS_TEST_DATA) + "/tokenizers/qwen35.json");
  return document;
}

JsonValue* at(JsonValue& value, std::string_view key) { return const_cast<JsonValue*>(value.find(key)); }

std::string refusal(const JsonValue& document) {
  const auto tokenizer = Tokenizer::parse(json_dumps(document));
  return tokenizer.ok() ? "accepted" : tokenizer.error().to_line();
}

TEST(TokenizerFile, MissingPartsAreNamed) {
  ASSERT_EQ(refusal(small_document()), "accepted");
  EXPECT_NE(refusal(JsonValue::array()).find("expected an object, found an array"), std::string::npos);
  EXPECT_NE(Tokenizer::parse("{").error().message.find("malformed"), std::string::npos);
  for (const char* key : {"model", "pre_tokenizer", "decoder"}) {
    JsonValue document = JsonValue::object();
    for (const JsonMember& member : small_document().members()) {
      if (member.key != key) document.append(member.key, member.value);
    }
    EXPECT_NE(refusal(document).find("\"" + std::string(key) + "\" is missing"), std::string::npos) << refusal(document);
  }
  for (const char* key : {"vocab", "merges"}) {
    JsonValue document = small_document(), model = JsonValue::object();
    for (const JsonMember& member : document.find("model")->members()) {
      if (member.key != key) model.append(member.key, member.value);
    }
    document.set("model", model);
    EXPECT_NE(refusal(document).find("\"" + std::string(key) + "\" is missing"), std::string::npos) << refusal(document);
  }
  JsonValue document = small_document(), vocabulary = JsonValue::object();
  for (const JsonMember& member : document.find("model")->find("vocab")->members()) {
    if (member.key != "!") vocabulary.append(member.key, member.value);
  }
  at(document, "model")->set("vocab", vocabulary);
  EXPECT_NE(refusal(document).find("no token for the byte 33"), std::string::npos) << refusal(document);
}

TEST(TokenizerFile, BadTokensAreNamed) {
  JsonValue document = small_document();
  at(*at(document, "model"), "vocab")->append("extra", JsonValue::integer(5));
  EXPECT_NE(refusal(document).find("the id 5 belongs to both"), std::string::npos) << refusal(document);

  document = small_document();
  at(*at(document, "model"), "vocab")->append("extra", JsonValue::integer(-5));
  EXPECT_NE(refusal(document).find("model.vocab \"extra\": expected 0 or more, found -5"), std::string::npos) << refusal(document);

  document = small_document();
  at(*at(document, "model"), "vocab")->append("extra", JsonValue::integer(int64_t{1} << 33));
  EXPECT_NE(refusal(document).find("8589934592 is over the limit"), std::string::npos) << refusal(document);

  document = small_document();
  at(*at(document, "model"), "vocab")->append("extra", JsonValue::floating(1.5));
  EXPECT_NE(refusal(document).find("expected an integer"), std::string::npos) << refusal(document);

  // A single enormous id costs no memory.
  document = small_document();
  at(*at(document, "model"), "vocab")->append("extra", JsonValue::integer((1 << 24) - 1));
  EXPECT_EQ(refusal(document), "accepted");
}

TEST(TokenizerFile, BadMergesAreNamed) {
  const auto with_merge = [](JsonValue merge) {
    JsonValue document = small_document();
    at(*at(document, "model"), "merges")->push_back(std::move(merge));
    return refusal(document);
  };
  const size_t count = small_document().find("model")->find("merges")->items().size();
  const std::string place = "model.merges[" + std::to_string(count) + "]";
  EXPECT_NE(with_merge(JsonValue::string("zz qq")).find(place + ": the token \"zz\" is not in model.vocab"), std::string::npos);
  EXPECT_NE(with_merge(JsonValue::string("! a")).find(place + ": the token \"!a\" is not in model.vocab"), std::string::npos)
      << with_merge(JsonValue::string("! a"));
  EXPECT_NE(with_merge(JsonValue::string("abc")).find("one space between"), std::string::npos);
  EXPECT_NE(with_merge(JsonValue::string("a b c")).find("one space between"), std::string::npos);
  EXPECT_NE(with_merge(JsonValue::integer(3)).find("expected two tokens, found an integer"), std::string::npos);
  EXPECT_NE(with_merge(JsonValue::array({JsonValue::string("a")})).find("an array of 1"), std::string::npos);
}

// Merges written "left right" mean the same as pairs.
TEST(TokenizerFile, BothMergeForms) {
  JsonValue document = small_document(), merges = JsonValue::array();
  for (const JsonValue& merge : document.find("model")->find("merges")->items()) {
    merges.push_back(JsonValue::string(*merge.items()[0].string_if() + " " + *merge.items()[1].string_if()));
  }
  at(document, "model")->set("merges", merges);
  const auto pairs = Tokenizer::parse(json_dumps(small_document()));
  const auto strings = Tokenizer::parse(json_dumps(document));
  ASSERT_TRUE(pairs.ok());
  ASSERT_TRUE(strings.ok()) << strings.error().to_line();
  const std::string text = "the tokens of the text, don't you think? \u4f60\u597d";
  EXPECT_EQ(*pairs->encode(text), *strings->encode(text));
  EXPECT_LT(pairs->encode(text)->size(), text.size());
}

TEST(TokenizerFile, BadAddedTokensAreNamed) {
  const auto with_added = [](std::string_view json) {
    JsonValue document = small_document();
    at(document, "added_tokens")->push_back(*parse_json(json));
    return refusal(document);
  };
  EXPECT_NE(with_added(R"({"id": 700, "content": ""})").find("expected 1 to 1024 bytes, found 0"), std::string::npos);
  EXPECT_NE(with_added(R"({"content": "x"})").find("\"id\" is missing"), std::string::npos);
  EXPECT_NE(with_added(R"({"id": 700})").find("\"content\" is missing"), std::string::npos);
  EXPECT_NE(with_added(R"({"id": 5, "content": "<new>"})").find("the id 5 belongs to both"), std::string::npos);
  EXPECT_NE(with_added(R"({"id": 700, "content": "<|im_start|>"})").find("has the ids"), std::string::npos);
  EXPECT_NE(with_added(R"({"id": 700, "content": "<new>", "special": 1})").find("special: expected a boolean"), std::string::npos);
  EXPECT_EQ(with_added(R"({"id": 700, "content": "<new>"})"), "accepted");
}

TEST(TokenizerFile, WhatWeDoNotRunIsRefused) {
  const auto with_model = [](std::string_view key, JsonValue value) {
    JsonValue document = small_document();
    at(document, "model")->set(key, std::move(value));
    return refusal(document);
  };
  EXPECT_NE(with_model("type", JsonValue::string("Unigram")).find("model of type \"Unigram\"; expected BPE"), std::string::npos);
  EXPECT_NE(with_model("byte_fallback", JsonValue::boolean(true)).find("byte_fallback"), std::string::npos);
  EXPECT_NE(with_model("dropout", JsonValue::floating(0.1)).find("dropout"), std::string::npos);
  EXPECT_NE(with_model("end_of_word_suffix", JsonValue::string("</w>")).find("end_of_word_suffix"), std::string::npos);
  EXPECT_NE(with_model("continuing_subword_prefix", JsonValue::string("##")).find("continuing_subword_prefix"), std::string::npos);
  const auto with_top = [](std::string_view key, std::string_view json) {
    JsonValue document = small_document();
    document.set(key, *parse_json(json));
    return refusal(document);
  };
  EXPECT_NE(with_top("normalizer", R"({"type": "NFKC"})").find("\"NFKC\"; expected NFC"), std::string::npos);
  EXPECT_EQ(with_top("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})"), "accepted");
  EXPECT_NE(with_top("decoder", R"({"type": "Metaspace"})").find("expected ByteLevel"), std::string::npos);
  EXPECT_NE(with_top("pre_tokenizer", R"({"type": "Whitespace"})").find("expected a Sequence"), std::string::npos);
  EXPECT_NE(with_top("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\w+x"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})")
                .find(R"(the split pattern "\\w+x" is not one of those known)"),
            std::string::npos);
}

TEST(TokenizerFile, CutAnywhereGivesOneLine) {
  const std::string text = read_test_file(std::string(CHORUS_TEST_DATA) + "/tokenizers/qwen2.json");
  for (size_t length = 0; length + 1 < text.size(); length += 97) {
    const auto tokenizer = Tokenizer::parse(std::string_view(text).substr(0, length));
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().to_line().find('\n'), std::string::npos);
  }
}

TEST(Tokenizer, LeadingTokensComeFromTheTemplateOfThePostProcessor) {
  const auto leading = [](const std::string& processor) {
    JsonValue document = small_document();
    auto made = parse_json(processor);
    EXPECT_TRUE(made.ok()) << processor;
    document.set("post_processor", made.ok() ? *made : JsonValue());
    const auto parsed = Tokenizer::parse(json_dumps(document));
    EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().to_line());
    return parsed.ok() ? std::vector<uint32_t>(parsed->leading_tokens().begin(), parsed->leading_tokens().end())
                       : std::vector<uint32_t>{99};
  };
  const std::string process = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
    {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<|endoftext|>"}}]})";
  EXPECT_EQ(leading(process), std::vector<uint32_t>{600});
  EXPECT_EQ(leading(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + process + "]}"), std::vector<uint32_t>{600});
  EXPECT_TRUE(leading("null").empty());
  EXPECT_TRUE(leading(R"({"type": "ByteLevel"})").empty());
  EXPECT_TRUE(leading(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]})").empty());
  EXPECT_TRUE(leading(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<none>"}}, {"SpecialToken": 5}, 7]})").empty());
}

}  // namespace
}  // namespace chorus::formats
