#include "formats/added_tokens.h"

#include "formats/unicode.h"

namespace chorus::formats {
namespace {

bool is_space(uint32_t character) { return character_class(character) == CharacterClass::space; }

bool stands_alone(std::string_view text, size_t start, size_t end) {
  if (start > 0) {
    size_t before = start;
    if (is_word_character(previous_character(text, before))) return false;
  }
  if (end < text.size()) {
    size_t after = end;
    if (is_word_character(next_character(text, after))) return false;
  }
  return true;
}

size_t without_space_before(std::string_view text, size_t from, size_t end) {
  while (end > from) {
    size_t start = end;
    if (!is_space(previous_character(text, start))) break;
    end = start;
  }
  return end;
}

size_t without_space_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_character(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::add(std::string_view text, const AddedToken& token) {
  uint32_t node = 0;
  for (const char character : text) {
    const auto byte = static_cast<uint8_t>(character);
    uint32_t next = 0;
    for (const auto& [child_byte, child] : nodes_[node].children) {
      if (child_byte == byte) next = child;
    }
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (node == 0) return;
  starts_[static_cast<uint8_t>(text[0])] = true;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Match AddedTokenFinder::longest_at(std::string_view text, size_t start) const {
  Match match;
  uint32_t node = 0;
  for (size_t at = start; at < text.size();) {
    uint32_t next = 0;
    for (const auto& [byte, child] : nodes_[node].children) {
      if (byte == static_cast<uint8_t>(text[at])) next = child;
    }
    if (next == 0) break;
    node = next;
    ++at;
    if (nodes_[node].token >= 0) match = {start, at, &tokens_[static_cast<size_t>(nodes_[node].token)]};
  }
  return match;
}

AddedTokenFinder::Match AddedTokenFinder::find_from(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = longest_at(text, at);
    if (match.token == nullptr) {
      ++at;
    } else if (match.token->single_word && !stands_alone(text, match.start, match.end)) {
      at = match.end;  // as the reference: what a refused match covers is not searched again
    } else {
      return match;
    }
  }
  return {};
}

AddedTokenFinder::Part AddedTokenFinder::next_part(std::string_view text, size_t& at) const {
  const size_t from = at;
  const Match match = find_from(text, from);
  if (match.token == nullptr) {
    at = text.size();
    return {text.substr(from), nullptr};
  }
  const size_t start = match.token->lstrip ? without_space_before(text, from, match.start) : match.start;
  if (start > from) {
    at = start;
    return {text.substr(from, start - from), nullptr};
  }
  at = match.token->rstrip ? without_space_after(text, match.end) : match.end;
  return {text.substr(from, at - from), match.token};
}

}  // namespace chorus::formats
