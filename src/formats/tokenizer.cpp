#include "formats/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "formats/added_tokens.h"
#include "formats/byte_pair.h"
#include "formats/json.h"
#include "formats/split_pattern.h"
#include "formats/unicode.h"

namespace chorus::formats {
namespace {

// GPT-2's printable stand-ins for bytes: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in order.
struct ByteAlphabet {
  std::array<uint32_t, 256> character{};
  std::array<int16_t, 0x144> byte{};  // by character; -1 where none

  ByteAlphabet() {
    byte.fill(-1);
    uint32_t stand_in = 0x100;
    for (uint32_t value = 0; value < 256; ++value) {
      const bool printable = (value >= 0x21 && value <= 0x7E) || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
      character[value] = printable ? value : stand_in++;
      byte[character[value]] = static_cast<int16_t>(value);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

// The bytes that a token's text stands for; the text itself when a character of it is no stand-in (an added token with a space in it).
std::string bytes_of(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const uint32_t character = next_character(text, at);
    if (character >= byte_alphabet().byte.size() || byte_alphabet().byte[character] < 0) return std::string(text);
    bytes += static_cast<char>(byte_alphabet().byte[character]);
  }
  return bytes;
}

std::string quote(std::string_view text) {
  constexpr size_t kShown = 80;
  const JsonValue value = JsonValue::string(replace_invalid_utf8(text.substr(0, kShown)));
  return json_dumps(value) + (text.size() > kShown ? "..." : "");
}

Error unsupported(std::string what) { return make_error(ErrorCode::unsupported, "tokenizer.json: " + std::move(what)); }
Error invalid(std::string what) { return make_error(ErrorCode::invalid_input, "tokenizer.json: " + std::move(what)); }

Result<std::string_view> type_of(const JsonValue& object, const std::string& what) {
  CHORUS_ASSIGN(const JsonValue* type, object.member("type", "tokenizer.json: " + what));
  return type->as_string("tokenizer.json: " + what + ".type");
}

Result<bool> flag_of(const JsonValue& object, std::string_view key, const std::string& what, bool absent) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || value->is_null()) return absent;
  return value->as_bool("tokenizer.json: " + what + "." + std::string(key));
}

// Null or NFC, also inside sequences; true when the text is to be normalised.
Result<bool> read_normalizer(const JsonValue* normalizer, const std::string& what) {
  if (normalizer == nullptr || normalizer->is_null()) return false;
  CHORUS_ASSIGN(const std::string_view type, type_of(*normalizer, what));
  if (type == "NFC") return true;
  if (type != "Sequence") return unsupported(what + " of type " + quote(type) + "; expected NFC");
  CHORUS_ASSIGN(const JsonValue* list, normalizer->member("normalizers", "tokenizer.json: " + what));
  CHORUS_ASSIGN(const auto items, list->as_array("tokenizer.json: " + what + ".normalizers"));
  bool nfc = false;
  for (const JsonValue& item : items) {
    CHORUS_ASSIGN(const bool one, read_normalizer(&item, what + ".normalizers[]"));
    nfc = nfc || one;
  }
  return nfc;
}

Result<SplitPattern> read_split(const JsonValue& split) {
  const std::string what = "pre_tokenizer split";
  CHORUS_ASSIGN(const bool invert, flag_of(split, "invert", what, false));
  CHORUS_ASSIGN(const JsonValue* behavior_value, split.member("behavior", "tokenizer.json: " + what));
  CHORUS_ASSIGN(const std::string_view behavior, behavior_value->as_string("tokenizer.json: " + what + ".behavior"));
  if (invert || behavior != "Isolated") return unsupported(what + " with behavior " + quote(behavior) + (invert ? ", inverted" : ""));
  CHORUS_ASSIGN(const JsonValue* pattern, split.member("pattern", "tokenizer.json: " + what));
  CHORUS_ASSIGN(const JsonValue* expression_value, pattern->member("Regex", "tokenizer.json: " + what + ".pattern"));
  CHORUS_ASSIGN(const std::string_view expression, expression_value->as_string("tokenizer.json: " + what + ".pattern.Regex"));
  if (const auto known = recognize_split_pattern(expression)) return *known;
  const JsonValue shown = JsonValue::string(std::string(expression.substr(0, 400)));
  return unsupported("the split pattern " + json_dumps(shown) + " is not one of those known");
}

Status check_byte_level(const JsonValue& step, const std::string& what) {
  CHORUS_ASSIGN(const bool prefix, flag_of(step, "add_prefix_space", what, true));
  CHORUS_ASSIGN(const bool regex, flag_of(step, "use_regex", what, true));
  if (prefix || regex) return unsupported(what + ": ByteLevel with add_prefix_space or use_regex; expected both false");
  return {};
}

// A sequence of Split and ByteLevel.
Result<SplitPattern> read_pre_tokenizer(const JsonValue& document) {
  CHORUS_ASSIGN(const JsonValue* root, document.member("pre_tokenizer", "tokenizer.json"));
  CHORUS_ASSIGN(const std::string_view type, type_of(*root, "pre_tokenizer"));
  if (type != "Sequence") return unsupported("pre_tokenizer of type " + quote(type) + "; expected a Sequence of Split and ByteLevel");
  CHORUS_ASSIGN(const JsonValue* list, root->member("pretokenizers", "tokenizer.json: pre_tokenizer"));
  CHORUS_ASSIGN(const auto steps, list->as_array("tokenizer.json: pre_tokenizer.pretokenizers"));
  if (steps.size() != 2) return unsupported("pre_tokenizer with " + std::to_string(steps.size()) + " steps; expected Split and ByteLevel");
  CHORUS_ASSIGN(const std::string_view first, type_of(steps[0], "pre_tokenizer.pretokenizers[0]"));
  CHORUS_ASSIGN(const std::string_view second, type_of(steps[1], "pre_tokenizer.pretokenizers[1]"));
  if (first != "Split" || second != "ByteLevel") {
    return unsupported("pre_tokenizer steps " + quote(first) + " and " + quote(second) + "; expected Split and ByteLevel");
  }
  CHORUS_TRY(check_byte_level(steps[1], "pre_tokenizer.pretokenizers[1]"));
  return read_split(steps[0]);
}

Status check_decoder(const JsonValue& document) {
  CHORUS_ASSIGN(const JsonValue* decoder, document.member("decoder", "tokenizer.json"));
  CHORUS_ASSIGN(const std::string_view type, type_of(*decoder, "decoder"));
  if (type != "ByteLevel") return unsupported("decoder of type " + quote(type) + "; expected ByteLevel");
  return {};
}

Status check_empty(const JsonValue& model, std::string_view key) {
  const JsonValue* value = model.find(key);
  const bool empty = value == nullptr || value->is_null() || (value->is_string() && value->string_if()->empty());
  if (!empty) return unsupported("model." + std::string(key) + " is set; expected null");
  return {};
}

// What of a BPE model we do not do.
Status check_model(const JsonValue& model) {
  if (model.find("type") != nullptr) {
    CHORUS_ASSIGN(const std::string_view type, type_of(model, "model"));
    if (type != "BPE") return unsupported("model of type " + quote(type) + "; expected BPE");
  }
  CHORUS_TRY(check_empty(model, "continuing_subword_prefix"));
  CHORUS_TRY(check_empty(model, "end_of_word_suffix"));
  if (const JsonValue* dropout = model.find("dropout"); dropout != nullptr && !dropout->is_null()) {
    CHORUS_ASSIGN(const double rate, dropout->as_double("tokenizer.json: model.dropout"));
    if (rate != 0) return unsupported("model.dropout is set; expected null");
  }
  CHORUS_ASSIGN(const bool byte_fallback, flag_of(model, "byte_fallback", "model", false));
  if (byte_fallback) return unsupported("model.byte_fallback is true; expected byte-level tokens");
  return {};
}

// `name` writes the value's name, and only for an error: a vocabulary has a quarter of a million ids.
template <typename Name>
Result<uint32_t> read_id(const JsonValue& value, const Name& name) {
  const auto read = value.as_uint64("");
  if (!read.ok()) return value.as_uint64("tokenizer.json: " + name()).error();
  const uint64_t id = *read;
  if (id >= limits::kVocabularyMax) {
    return invalid(name() + ": the id " + std::to_string(id) + " is over the limit of " + std::to_string(limits::kVocabularyMax - 1));
  }
  return static_cast<uint32_t>(id);
}

std::string merge_name(size_t rank) { return "model.merges[" + std::to_string(rank) + "]"; }

// A merge as "left right" or ["left", "right"].
Result<std::pair<std::string_view, std::string_view>> read_merge(const JsonValue& merge, size_t rank) {
  if (const std::string* text = merge.string_if()) {
    const size_t space = text->find(' ');
    if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos) {
      return invalid(merge_name(rank) + ": expected two tokens with one space between, found " + quote(*text));
    }
    return std::pair(std::string_view(*text).substr(0, space), std::string_view(*text).substr(space + 1));
  }
  const auto pair = merge.items();
  if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
    return invalid(merge_name(rank) + ": expected two tokens, found " + json_kind_name(merge.kind()) +
                   (merge.is_array() ? " of " + std::to_string(pair.size()) : std::string()));
  }
  return std::pair(std::string_view(*pair[0].string_if()), std::string_view(*pair[1].string_if()));
}

Result<AddedToken> read_added_token(const JsonValue& entry, const std::string& what) {
  AddedToken token;
  CHORUS_ASSIGN(const JsonValue* content_value, entry.member("content", "tokenizer.json: " + what));
  CHORUS_ASSIGN(const std::string_view content, content_value->as_string("tokenizer.json: " + what + ".content"));
  CHORUS_ASSIGN(const JsonValue* id_value, entry.member("id", "tokenizer.json: " + what));
  CHORUS_ASSIGN(token.id, read_id(*id_value, [&] { return what + ".id"; }));
  if (content.empty() || content.size() > kAddedTokenBytesMax) {
    return invalid(what + ".content: expected 1 to " + std::to_string(kAddedTokenBytesMax) + " bytes, found " +
                   std::to_string(content.size()));
  }
  token.content = std::string(content);
  CHORUS_ASSIGN(token.special, flag_of(entry, "special", what, false));
  CHORUS_ASSIGN(token.normalized, flag_of(entry, "normalized", what, !token.special));
  CHORUS_ASSIGN(token.single_word, flag_of(entry, "single_word", what, false));
  CHORUS_ASSIGN(token.lstrip, flag_of(entry, "lstrip", what, false));
  CHORUS_ASSIGN(token.rstrip, flag_of(entry, "rstrip", what, false));
  return token;
}

}  // namespace

struct Tokenizer::Implementation {
  struct Entry {
    uint32_t id = 0;
    bool special = false;
    bool in_model = false;  // in model.vocab, not only an added token
    std::string text;       // as in the file
  };
  std::vector<Entry> entries;                          // by id; memory follows the number of tokens, not the largest id
  std::unordered_map<std::string_view, uint32_t> ids;  // text (a view into entries) to index in entries
  BytePairMerges merges;
  AddedTokenFinder raw_finder;         // tokens looked for in the text as it comes
  AddedTokenFinder normalized_finder;  // tokens looked for after NFC
  SplitPattern pattern;
  bool nfc = false;
  bool ignore_merges = false;
  std::vector<uint32_t> leading;  // special tokens before a text

  const Entry* entry(uint32_t id) const {
    const auto at = std::lower_bound(entries.begin(), entries.end(), id, [](const Entry& a, uint32_t b) { return a.id < b; });
    return at != entries.end() && at->id == id ? &*at : nullptr;
  }

  const Entry* model_token(std::string_view text) const {
    const auto found = ids.find(text);
    return found != ids.end() && entries[found->second].in_model ? &entries[found->second] : nullptr;
  }

  Status read_tokens(const JsonValue& vocabulary, const std::vector<AddedToken>& added);
  Status index_tokens();
  Status read_merges(const JsonValue& list);
  Status index_added_tokens(const std::vector<AddedToken>& added);
  void read_leading_tokens(const JsonValue& processor);
  Status append_normalized(std::string_view text, std::vector<uint32_t>& out) const;
  void append_pieces(std::string_view text, std::vector<uint32_t>& out) const;
};

Status Tokenizer::Implementation::read_tokens(const JsonValue& vocabulary, const std::vector<AddedToken>& added) {
  const auto two_ids = [](std::string_view text, uint32_t a, uint32_t b) {
    return invalid("the token " + quote(text) + " has the ids " + std::to_string(a) + " and " + std::to_string(b));
  };
  entries.reserve(vocabulary.members().size() + added.size());
  std::unordered_map<std::string_view, size_t> added_entries;  // text to index in entries
  for (const AddedToken& token : added) {
    const auto [same, fresh] = added_entries.emplace(token.content, entries.size());
    if (fresh) {
      entries.push_back({token.id, token.special, false, token.content});
    } else if (entries[same->second].id != token.id) {
      return two_ids(token.content, entries[same->second].id, token.id);
    }
  }
  for (const JsonMember& member : vocabulary.members()) {
    CHORUS_ASSIGN(const uint32_t id, read_id(member.value, [&] { return "model.vocab " + quote(member.key); }));
    const auto same = added_entries.find(member.key);
    if (same == added_entries.end()) {
      entries.push_back({id, false, true, member.key});
    } else if (entries[same->second].id == id) {
      entries[same->second].in_model = true;
    } else {
      return two_ids(member.key, id, entries[same->second].id);
    }
  }
  return {};
}

Status Tokenizer::Implementation::index_tokens() {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  ids.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0 && entries[i].id == entries[i - 1].id) {
      return invalid("the id " + std::to_string(entries[i].id) + " belongs to both " + quote(entries[i - 1].text) + " and " +
                     quote(entries[i].text));
    }
    ids.emplace(entries[i].text, static_cast<uint32_t>(i));
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string stand_in;
    append_utf8(stand_in, byte_alphabet().character[byte]);
    const Entry* token = model_token(stand_in);
    if (token == nullptr) return invalid("model.vocab has no token for the byte " + std::to_string(byte) + " (" + quote(stand_in) + ")");
    merges.set_byte(static_cast<uint8_t>(byte), token->id);
  }
  return {};
}

Status Tokenizer::Implementation::read_merges(const JsonValue& list) {
  CHORUS_ASSIGN(const auto items, list.as_array("tokenizer.json: model.merges"));
  merges.reserve(items.size());
  std::string merged_text;
  for (size_t rank = 0; rank < items.size(); ++rank) {
    CHORUS_ASSIGN(const auto pair, read_merge(items[rank], rank));
    merged_text.assign(pair.first).append(pair.second);
    uint32_t found[3] = {};
    const std::string_view texts[3] = {pair.first, pair.second, merged_text};
    for (size_t i = 0; i < 3; ++i) {
      const Entry* token = model_token(texts[i]);
      if (token == nullptr) return invalid(merge_name(rank) + ": the token " + quote(texts[i]) + " is not in model.vocab");
      found[i] = token->id;
    }
    merges.set_merge(found[0], found[1], static_cast<uint32_t>(rank), found[2]);
  }
  return {};
}

Status Tokenizer::Implementation::index_added_tokens(const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    if (token.special) {
      const auto at = std::lower_bound(entries.begin(), entries.end(), token.id, [](const Entry& a, uint32_t b) { return a.id < b; });
      CHORUS_CHECK(at != entries.end() && at->id == token.id);
      at->special = true;
    }
    if (!token.normalized) {
      raw_finder.add(token.content, token);
    } else if (nfc) {
      CHORUS_ASSIGN(const std::string text, normalize_nfc(token.content));
      normalized_finder.add(text, token);
    } else {
      normalized_finder.add(token.content, token);
    }
  }
  return {};
}

void Tokenizer::Implementation::append_pieces(std::string_view text, std::vector<uint32_t>& out) const {
  std::string stand_ins;
  for (size_t at = 0; at < text.size();) {
    const size_t end = split_piece_end(pattern, text, at);
    const std::string_view piece = text.substr(at, end - at);
    at = end;
    if (ignore_merges) {  // a piece that is a token as a whole is that token
      stand_ins.clear();
      for (const char byte : piece) append_utf8(stand_ins, byte_alphabet().character[static_cast<uint8_t>(byte)]);
      if (const Entry* whole = model_token(stand_ins); whole != nullptr) {
        out.push_back(whole->id);
        continue;
      }
    }
    merges.append_ids(piece, out);
  }
}

Status Tokenizer::Implementation::append_normalized(std::string_view text, std::vector<uint32_t>& out) const {
  std::string normalized;
  if (nfc) {
    CHORUS_ASSIGN(normalized, normalize_nfc(text));
    text = normalized;
  }
  for (size_t at = 0; at < text.size();) {
    const AddedTokenFinder::Part part = normalized_finder.next_part(text, at);
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      append_pieces(part.text, out);
    }
  }
  return {};
}

Tokenizer::Tokenizer(std::shared_ptr<const Implementation> implementation) : implementation_(std::move(implementation)) {}

// The template of a post_processor: special tokens up to the place of the text. Other kinds add nothing at the beginning.
void Tokenizer::Implementation::read_leading_tokens(const JsonValue& processor) {
  const JsonValue* type = processor.find("type");
  if (type == nullptr || type->string_if() == nullptr) return;
  if (const JsonValue* list = processor.find("processors"); *type->string_if() == "Sequence" && list != nullptr) {
    for (const JsonValue& item : list->items()) {
      if (item.find("processors") == nullptr) read_leading_tokens(item);
    }
  }
  const JsonValue* single = processor.find("single");
  if (*type->string_if() != "TemplateProcessing" || single == nullptr) return;
  for (const JsonValue& piece : single->items()) {
    const JsonValue* special = piece.find("SpecialToken");
    if (special == nullptr) return;
    const JsonValue* name = special->find("id");
    const auto found = name != nullptr && name->string_if() != nullptr ? ids.find(*name->string_if()) : ids.end();
    if (found != ids.end()) leading.push_back(entries[found->second].id);
  }
}

// Left unread, because encode adds nothing around a text and never cuts or pads: the rest of post_processor, truncation, padding.
Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  auto parsed = parse_json(tokenizer_json, {.bytes_max = limits::kTokenizerBytesMax});
  if (!parsed.ok()) return std::move(parsed).error().with_context("reading tokenizer.json");
  const JsonValue document = std::move(parsed).value();
  auto built = std::make_shared<Implementation>();
  CHORUS_ASSIGN(const JsonValue* model, document.member("model", "tokenizer.json"));
  if (!model->is_object()) return invalid(std::string("model: expected an object, found ") + json_kind_name(model->kind()));
  CHORUS_TRY(check_model(*model));
  CHORUS_ASSIGN(built->nfc, read_normalizer(document.find("normalizer"), "normalizer"));
  CHORUS_ASSIGN(built->pattern, read_pre_tokenizer(document));
  CHORUS_TRY(check_decoder(document));
  CHORUS_ASSIGN(built->ignore_merges, flag_of(*model, "ignore_merges", "model", false));

  std::vector<AddedToken> added;
  if (const JsonValue* list = document.find("added_tokens"); list != nullptr && !list->is_null()) {
    CHORUS_ASSIGN(const auto items, list->as_array("tokenizer.json: added_tokens"));
    for (size_t i = 0; i < items.size(); ++i) {
      CHORUS_ASSIGN(AddedToken token, read_added_token(items[i], "added_tokens[" + std::to_string(i) + "]"));
      added.push_back(std::move(token));
    }
  }
  CHORUS_ASSIGN(const JsonValue* vocabulary, model->member("vocab", "tokenizer.json: model"));
  if (!vocabulary->is_object()) return invalid(std::string("model.vocab: expected an object, found ") + json_kind_name(vocabulary->kind()));
  CHORUS_TRY(built->read_tokens(*vocabulary, added));
  CHORUS_TRY(built->index_tokens());
  CHORUS_ASSIGN(const JsonValue* merges, model->member("merges", "tokenizer.json: model"));
  CHORUS_TRY(built->read_merges(*merges));
  CHORUS_TRY(built->index_added_tokens(added));
  if (const JsonValue* processor = document.find("post_processor")) built->read_leading_tokens(*processor);
  return Tokenizer(std::move(built));
}

Result<std::vector<uint32_t>> Tokenizer::encode(std::string_view utf8) const {
  if (utf8.size() > limits::kTextBytesMax) {
    return make_error(ErrorCode::limit_exceeded,
                      "the text has " + std::to_string(utf8.size()) + " bytes, over the limit of " + std::to_string(limits::kTextBytesMax));
  }
  CHORUS_TRY(check_utf8(utf8));
  std::vector<uint32_t> out;
  for (size_t at = 0; at < utf8.size();) {
    const AddedTokenFinder::Part part = implementation_->raw_finder.next_part(utf8, at);
    if (part.token != nullptr) {
      out.push_back(part.token->id);
    } else {
      CHORUS_TRY(implementation_->append_normalized(part.text, out));
    }
  }
  return out;
}

Result<std::string> Tokenizer::token_bytes(uint32_t id) const {
  const Implementation::Entry* entry = implementation_->entry(id);
  if (entry == nullptr) return make_error(ErrorCode::not_found, "the tokenizer has no token with the id " + std::to_string(id));
  return bytes_of(entry->text);
}

Result<std::string> Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const uint32_t id : ids) {
    const Implementation::Entry* entry = implementation_->entry(id);
    if (entry == nullptr) return make_error(ErrorCode::not_found, "the tokenizer has no token with the id " + std::to_string(id));
    if (!(skip_special_tokens && entry->special)) bytes += bytes_of(entry->text);
  }
  return replace_invalid_utf8(bytes);
}

std::optional<uint32_t> Tokenizer::token_id(std::string_view token) const {
  const auto found = implementation_->ids.find(token);
  if (found == implementation_->ids.end()) return std::nullopt;
  return implementation_->entries[found->second].id;
}

std::span<const uint32_t> Tokenizer::leading_tokens() const { return implementation_->leading; }

uint32_t Tokenizer::vocabulary_size() const { return implementation_->entries.empty() ? 0 : implementation_->entries.back().id + 1; }

}  // namespace chorus::formats
