#include "formats/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace chorus::formats {
namespace {

constexpr CharacterClass kLetter = CharacterClass::letter;
constexpr CharacterClass kMark = CharacterClass::mark;
constexpr CharacterClass kNumber = CharacterClass::number;
constexpr CharacterClass kSpace = CharacterClass::space;

struct ClassRange {
  uint32_t first;
  uint32_t last;
  CharacterClass kind;
};
struct InertRange {
  uint32_t first;
  uint32_t last;
};

#include "formats/unicode_tables.inc"

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kHangulTailBase = 0x11A7;  // joins nothing, but some versions of utf8proc compose it away after a syllable
constexpr uint8_t kClassBits = 0x07;
constexpr uint8_t kInertBit = 0x08;

// One byte per code point: the class, and whether NFC leaves the character alone.
const std::vector<uint8_t>& traits() {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> result(kCodePoints, 0);
    for (const ClassRange& range : kClassRanges) {
      std::fill(result.begin() + range.first, result.begin() + range.last + 1, static_cast<uint8_t>(range.kind));
    }
    for (const InertRange& range : kInertRanges) {
      for (uint32_t character = range.first; character <= range.last; ++character) result[character] |= kInertBit;
    }
    result[kHangulTailBase] |= kInertBit;
    return result;
  }();
  return table;
}

bool is_continuation(unsigned char byte) { return (byte & 0xC0u) == 0x80u; }

// Length of the well-formed sequence at `at`, or 0; `broken` is then how many bytes form the maximal broken part (at least 1).
size_t sequence_length(std::string_view text, size_t at, size_t& broken) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0); };
  const unsigned char lead = byte(at);
  broken = 1;
  if (lead < 0x80u) return 1;
  if (lead < 0xC2u || lead > 0xF4u) return 0;
  const size_t length = lead < 0xE0u ? 2 : lead < 0xF0u ? 3 : 4;
  // The second byte carries the limits against overlong forms, surrogates and values past U+10FFFF.
  const unsigned char low = lead == 0xE0u ? 0xA0u : lead == 0xF0u ? 0x90u : 0x80u;
  const unsigned char high = lead == 0xEDu ? 0x9Fu : lead == 0xF4u ? 0x8Fu : 0xBFu;
  if (byte(at + 1) < low || byte(at + 1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (!is_continuation(byte(at + i))) {
      broken = i;
      return 0;
    }
  }
  return length;
}

uint8_t combining_class(int32_t character) { return static_cast<uint8_t>(utf8proc_get_property(character)->combining_class); }

void sort_marks(std::vector<int32_t>& characters) {
  const auto end = characters.end();
  for (auto start = characters.begin(); start != end;) {
    if (combining_class(*start) == 0) {
      ++start;
      continue;
    }
    auto stop = start;
    while (stop != end && combining_class(*stop) != 0) ++stop;
    if (stop - start > 1) {
      std::stable_sort(start, stop, [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    }
    start = stop;
  }
}

// Normalises the pending characters into `out` and empties them.
Status flush(std::vector<int32_t>& pending, std::string& out) {
  if (pending.empty()) return {};
  std::vector<int32_t> decomposed;
  decomposed.reserve(pending.size() * 2);
  constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  for (const int32_t character : pending) {
    int32_t parts[32];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(character, parts, 32, kDecompose, &boundary);
    if (count < 0 || count > 32) return make_error(ErrorCode::internal, "a character cannot be decomposed for NFC");
    decomposed.insert(decomposed.end(), parts, parts + count);
  }
  pending.clear();
  sort_marks(decomposed);
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()), kCompose);
  if (length < 0) return make_error(ErrorCode::internal, "text cannot be composed for NFC");
  for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(out, static_cast<uint32_t>(decomposed[static_cast<size_t>(i)]));
  return {};
}

}  // namespace

CharacterClass character_class(uint32_t character) {
  return character < kCodePoints ? static_cast<CharacterClass>(traits()[character] & kClassBits) : CharacterClass::other;
}

bool is_word_character(uint32_t character) {
  switch (character_class(character)) {
    case CharacterClass::letter:
    case CharacterClass::mark:
      return true;
    case CharacterClass::number: {
      const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(character));
      return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL;
    }
    case CharacterClass::space:
      return false;
    case CharacterClass::other:
      break;
  }
  if (character == 0x200Cu || character == 0x200Du) return true;  // joiners
  if ((character >= 0x24B6u && character <= 0x24E9u) || (character >= 0x1F130u && character <= 0x1F149u) ||
      (character >= 0x1F150u && character <= 0x1F169u) || (character >= 0x1F170u && character <= 0x1F189u)) {
    return true;  // symbols that are alphabetic by Unicode's Other_Alphabetic
  }
  return character < kCodePoints && utf8proc_category(static_cast<int32_t>(character)) == UTF8PROC_CATEGORY_PC;
}

Status check_utf8(std::string_view text) {
  size_t broken = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text, at, broken);
    if (length == 0) {
      return make_error(ErrorCode::invalid_input, "the text is not valid UTF-8 at byte " + std::to_string(at));
    }
    at += length;
  }
  return {};
}

uint32_t next_character(std::string_view text, size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80u) return lead;
  const size_t more = lead >= 0xF0u ? 3 : lead >= 0xE0u ? 2 : 1;
  uint32_t character = lead & (0x3Fu >> more);
  for (size_t i = 0; i < more && at < text.size(); ++i) character = (character << 6) | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
  return character;
}

uint32_t previous_character(std::string_view text, size_t& end) {
  do {
    --end;
  } while (end > 0 && is_continuation(static_cast<unsigned char>(text[end])));
  size_t at = end;
  return next_character(text, at);
}

void append_utf8(std::string& out, uint32_t character) {
  const auto tail = [&](uint32_t shift) { out += static_cast<char>(0x80u | ((character >> shift) & 0x3Fu)); };
  if (character < 0x80u) {
    out += static_cast<char>(character);
  } else if (character < 0x800u) {
    out += static_cast<char>(0xC0u | (character >> 6));
    tail(0);
  } else if (character < 0x10000u) {
    out += static_cast<char>(0xE0u | (character >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0u | (character >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t broken = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = sequence_length(bytes, at, broken);
    if (length > 0) {
      out += bytes.substr(at, length);
      at += length;
    } else {
      append_utf8(out, 0xFFFDu);
      at += broken;
    }
  }
  return out;
}

Result<std::string> normalize_nfc(std::string_view text) {
  const auto is_ascii = [](char byte) { return static_cast<unsigned char>(byte) < 0x80u; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> pending;  // since the last character that cannot join its left neighbour
  for (size_t at = 0; at < text.size();) {
    const bool ascii = is_ascii(text[at]);
    if (ascii && pending.size() == 1 && pending[0] < 0x80) {  // two ASCII characters in a row: the common case
      out += static_cast<char>(pending[0]);
      pending[0] = text[at++];
      continue;
    }
    const uint32_t character = next_character(text, at);
    const bool inert = (traits()[character] & kInertBit) != 0;
    if (ascii || inert) CHORUS_TRY(flush(pending, out));
    if (inert) {
      append_utf8(out, character);
    } else {
      pending.push_back(static_cast<int32_t>(character));
    }
  }
  CHORUS_TRY(flush(pending, out));
  return out;
}

}  // namespace chorus::formats
